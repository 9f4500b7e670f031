//! One row of the registry as it is stored, new or old. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::Fingerprint;

/// Keys of policies start with this.
pub const PREFIX: &str = crate::config::POLICIES;
/// The longest key every supported store takes.
pub const KEY_MAX: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEntry {
    pub policy_name: String,
    pub title: String,
    pub status: Status,
    pub last_updated: String,
    pub sha: String,
    pub path: String,
    #[serde(flatten)]
    pub fields: Deprecated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Active,
    /// Written by others only; accepted as it is until the document changes.
    Archived,
}

/// What the first layout knew of a policy. Carried along for a while, never made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deprecated {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_no: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_url: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_url: Option<Value>,
}

impl Deprecated {
    pub fn is_empty(&self) -> bool {
        *self == Deprecated::default()
    }

    /// What is here, completed by what is there.
    #[must_use]
    pub fn or(self, other: &Deprecated) -> Deprecated {
        Deprecated {
            file_no: self.file_no.or_else(|| other.file_no.clone()),
            preview_url: self.preview_url.or_else(|| other.preview_url.clone()),
            download_url: self.download_url.or_else(|| other.download_url.clone()),
        }
    }
}

/// What a stored value is.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    Current(PolicyEntry),
    /// A row of the first layout: keyed by title, without a SHA.
    Legacy {
        title: String,
        fields: Deprecated,
    },
    /// Nothing of ours.
    Other,
}

/// Only what tells the two layouts apart and what must survive; a row may hold more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Loose {
    policy_name: Option<String>,
    title: Option<String>,
    #[serde(default)]
    status: Option<Status>,
    #[serde(default)]
    last_updated: Option<String>,
    sha: Option<String>,
    path: Option<String>,
    #[serde(flatten)]
    fields: Deprecated,
}

impl Stored {
    pub fn read(key: &str, value: &[u8]) -> Stored {
        let (Some(name), Ok(loose)) = (key.strip_prefix(PREFIX), serde_json::from_slice::<Loose>(value))
        else {
            return Stored::Other;
        };
        match loose {
            Loose { policy_name, title: Some(title), sha: Some(sha), path: Some(path), .. }
                if is_sha(&sha) =>
            {
                if policy_name.is_some_and(|own| own != name) {
                    return Stored::Other;
                }
                Stored::Current(PolicyEntry {
                    policy_name: name.to_owned(),
                    title,
                    status: loose.status.unwrap_or(Status::Active),
                    last_updated: loose.last_updated.unwrap_or_default(),
                    sha: sha.to_ascii_lowercase(),
                    path,
                    fields: loose.fields,
                })
            }
            Loose { sha: None, title, fields, .. } => {
                Stored::Legacy { title: title.unwrap_or_else(|| name.to_owned()), fields }
            }
            Loose { .. } => Stored::Other,
        }
    }
}

impl PolicyEntry {
    /// What makes two rows the same: not the time, not the status.
    pub fn fingerprint(&self) -> Fingerprint {
        let fields = if self.fields.is_empty() {
            String::new()
        } else {
            serde_json::to_string(&self.fields).unwrap_or_default()
        };
        let parts = [&self.sha, &self.path, &self.title, &fields];
        Fingerprint::of_parts(&parts.map(std::string::String::as_bytes))
    }

    pub fn says_the_same(&self, other: &PolicyEntry) -> bool {
        (&self.sha, &self.path, &self.title) == (&other.sha, &other.path, &other.title)
    }
}

/// 40 or 64 hex digits.
pub fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Why a path cannot be stored, if it cannot.
pub fn path_fault(path: &str) -> Option<&'static str> {
    if path.is_empty() || path.starts_with('/') {
        return Some("the path is not relative");
    }
    if path.contains(['\0', '\\']) {
        return Some("the path holds a NUL or a backslash");
    }
    path.split('/').find_map(|part| match part {
        "" => Some("the path holds an empty segment"),
        ".." | "." => Some("the path holds a dot segment"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "ABCDEF0123456789abcdef0123456789abcdef01";

    #[test]
    fn rows_of_both_layouts_are_told_apart() {
        let read = |key: &str, value: &str| Stored::read(key, value.as_bytes());
        let current = format!(r#"{{"policyName":"a","title":"A","sha":"{SHA}","path":"x/a.md","extra":1}}"#);
        let Stored::Current(entry) = read("policy:a", &current) else { panic!("current") };
        assert_eq!((entry.sha.as_str(), entry.status), (SHA.to_ascii_lowercase().as_str(), Status::Active));
        let legacy = read("policy:학칙", r#"{"title":"학칙","fileNo":868}"#);
        let fields = Deprecated { file_no: Some(868.into()), ..Deprecated::default() };
        assert_eq!(legacy, Stored::Legacy { title: "학칙".into(), fields });
        for (key, value) in [
            ("policy:b", current.as_str()),
            ("queue:a", current.as_str()),
            ("policy:a", "not JSON"),
            ("policy:a", r#"{"title":"A","sha":"short","path":"a.md"}"#),
            ("policy:a", r#"{"title":"A","sha":"","status":"odd"}"#),
        ] {
            assert_eq!(read(key, value), Stored::Other, "{key} {value}");
        }
    }

    #[test]
    fn only_plain_relative_paths_are_stored() {
        for good in ["a.md", "a/b.md", "학칙/.hidden/x.md", "a/..b.md"] {
            assert_eq!(path_fault(good), None, "{good}");
        }
        for bad in ["", "/a.md", "a//b.md", "../a.md", "a/../b.md", "./a.md", "a\\b.md", "a\0.md", "a/"] {
            assert!(path_fault(bad).is_some(), "{bad}");
        }
    }
}
