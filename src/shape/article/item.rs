//! An article as a source hands it over: the JSON document between a feed and its Markdown file.

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::record::Fingerprint;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Article {
    /// The board (or feed) it is in, as keys name it.
    pub board: String,
    /// Its id there, fit for a key.
    pub id: String,
    pub title: String,
    pub link: String,
    /// The day it was published, in Asia/Seoul.
    pub published: Date,
    pub department: String,
    pub html: String,
    pub attachments: Vec<Attachment>,
    /// What the file says about the feed; not part of the article's version.
    pub feed: Head,
    /// `None` until they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previews: Option<Vec<Preview>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub title: String,
    pub link: String,
    pub description: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub name: String,
    /// Where the file is; may be empty.
    pub url: String,
    /// Where people can look at it; may be empty.
    pub preview_url: String,
    /// The number under which its text can be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    pub id: String,
    /// `None` = it could not be fetched this time.
    pub content: Option<String>,
}

impl Article {
    /// Another version is another article; the feed's own title and the previews do not count.
    pub fn version(&self) -> Result<String> {
        let published = self.published.to_string();
        let attachments = serde_json::to_vec(&self.attachments).map_err(broken)?;
        let parts = [&self.title, &self.link, &published, &self.department, &self.html];
        let mut parts: Vec<&[u8]> = parts.map(std::string::String::as_bytes).to_vec();
        parts.push(&attachments);
        Ok(Fingerprint::of_parts(&parts).to_string())
    }

    /// The attachments whose text can be asked for, each once.
    pub fn preview_ids(&self) -> impl Iterator<Item = &str> {
        self.attachments.iter().enumerate().filter_map(|(at, attachment)| {
            let id = attachment.preview_id.as_deref()?;
            let earlier = self.attachments[..at].iter().any(|other| other.preview_id.as_deref() == Some(id));
            (!earlier).then_some(id)
        })
    }

    pub fn wants_previews(&self) -> bool {
        self.preview_ids().next().is_some()
    }

    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(broken)
    }

    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            Error::new(Kind::Invalid, "this is not an article")
                .caused_by(error)
                .remedy_is("`as = \"article\"` takes its entries from an `rss` source.")
        })
    }
}

fn broken(error: serde_json::Error) -> Error {
    Error::bug("an article cannot be written as JSON").caused_by(error)
}
