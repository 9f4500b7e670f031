//! The run report: what a run did, in counts that add up. It is the JSON users see and the record state keeps.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Fault, Kind};
use crate::record::group_of;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Running,
    Ok,
    Held,
    Partial,
    Failed,
    Canceled,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Ok => "ok",
            Status::Held => "held",
            Status::Partial => "partial",
            Status::Failed => "failed",
            Status::Canceled => "canceled",
        }
    }
}

/// Items by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    pub scanned: u64,
    pub added: u64,
    pub updated: u64,
    pub deleted: u64,
    pub unchanged: u64,
    pub skipped: u64,
    pub failed: u64,
    pub held: u64,
    pub held_by: HeldBy,
    pub missing: u64,
    pub unproven: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldBy {
    pub add: u64,
    pub update: u64,
    pub delete: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.scanned += other.scanned;
        self.added += other.added;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.unchanged += other.unchanged;
        self.skipped += other.skipped;
        self.failed += other.failed;
        self.held += other.held;
        self.held_by.add += other.held_by.add;
        self.held_by.update += other.held_by.update;
        self.held_by.delete += other.held_by.delete;
        self.missing += other.missing;
        self.unproven += other.unproven;
    }

    /// Every scanned item ended somewhere.
    pub fn add_up(&self) -> bool {
        let ended = self.added + self.updated + self.unchanged + self.skipped + self.failed;
        self.scanned == ended + self.held_by.add + self.held_by.update
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub id: String,
    pub pipeline: String,
    pub status: Status,
    pub trigger: String,
    #[serde(flatten)]
    pub counts: Counts,
    pub dead: u64,
    pub requests: u64,
    pub writes: u64,
    pub started: String,
    pub finished: Option<String>,
    pub cursor: Option<String>,
    /// Where the source stands, whether the cursor could follow or not.
    #[serde(skip)]
    pub head: Option<String>,
    /// Entries of the source as a whole, if it was listed to its end.
    #[serde(skip)]
    pub listed: Option<u64>,
    pub plan: Option<String>,
    pub groups: BTreeMap<String, Counts>,
    pub errors: Vec<Fault>,
    /// Errors beyond the ones listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errors_omitted: u64,
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Its process died; found by the next start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// What ended the run as a whole, if something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Kind>,
    /// The store it wrote to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The run this one reverses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Errors listed one by one in a report; more are counted, so that a report stays readable.
pub const ERRORS_MAX: usize = 1_000;
const WARNINGS_MAX: usize = 200;

impl Report {
    pub fn start(id: String, pipeline: &str, trigger: &str, started: String) -> Self {
        Report {
            id,
            pipeline: pipeline.to_owned(),
            status: Status::Running,
            trigger: trigger.to_owned(),
            counts: Counts::default(),
            dead: 0,
            requests: 0,
            writes: 0,
            started,
            finished: None,
            cursor: None,
            head: None,
            listed: None,
            plan: None,
            groups: BTreeMap::new(),
            errors: Vec::new(),
            errors_omitted: 0,
            warnings: Vec::new(),
            interrupted: false,
            cause: None,
            store: None,
            undoes: None,
        }
    }

    /// Count in the whole and in the scope's group.
    pub fn count(&mut self, scope: &str, tally: impl Fn(&mut Counts)) {
        tally(&mut self.counts);
        let group = group_of(scope);
        if let Some(counts) = self.groups.get_mut(group) {
            return tally(counts);
        }
        tally(self.groups.entry(group.to_owned()).or_default());
    }

    pub fn error(&mut self, fault: Fault) {
        if self.errors.len() < ERRORS_MAX { self.errors.push(fault) } else { self.errors_omitted += 1 }
    }

    pub fn warn(&mut self, text: impl Into<String>) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(text.into());
        }
    }

    /// What somebody else counted of the same run.
    pub fn absorb(&mut self, other: Report) {
        for (group, counts) in other.groups {
            self.count(&group, |all| all.add(&counts));
        }
        other.errors.into_iter().for_each(|fault| self.error(fault));
        self.errors_omitted += other.errors_omitted;
        other.warnings.into_iter().for_each(|text| self.warn(text));
    }

    /// The errors for people: what several keys have in common is told once.
    pub fn troubles(&self) -> Vec<Trouble<'_>> {
        let mut troubles: Vec<Trouble<'_>> = Vec::new();
        let mut said: HashMap<(Kind, Cow<'_, str>, &String), usize> = HashMap::new();
        for fault in &self.errors {
            let saying = fault.place().map(|place| (fault.kind, namelessly(fault, place), &fault.remedy));
            match saying.as_ref().and_then(|saying| said.get(saying)) {
                Some(&at) => troubles[at].others += 1,
                None => {
                    said.extend(saying.map(|saying| (saying, troubles.len())));
                    troubles.push(Trouble { fault, others: 0 });
                }
            }
        }
        troubles
    }

    /// The run as a whole could not go on.
    pub fn fail(&mut self, error: &Error) {
        self.cause = Some(error.kind());
        let fault = Fault::of(error);
        // A source of one scope has said so already, as that scope.
        if !self.errors.iter().any(|known| says_the_same(known, &fault)) {
            self.error(fault);
        }
    }

    /// Its process died: it is marked as running, and nobody runs it.
    pub fn cut_off(&mut self) {
        let error = Error::new(Kind::Unavailable, "interrupted: the process ended before the run did")
            .remedy_is("Nothing to do: the next run settles what had arrived and repeats the rest.");
        self.error(Fault::of(&error));
        self.status = Status::Failed;
        self.interrupted = true;
    }

    /// Say how it ended. `ok` only when the counts add up and nothing is held, failed or unproven.
    pub fn conclude(&mut self) {
        let counts = &self.counts;
        self.status = match self.cause {
            Some(Kind::Canceled) => Status::Canceled,
            Some(_) if self.writes > 0 => Status::Partial,
            Some(_) => Status::Failed,
            None if counts.failed > 0 || counts.unproven > 0 || self.dead > 0 => Status::Partial,
            None if counts.held > 0 => Status::Held,
            None => Status::Ok,
        };
        if self.cause.is_none() && !counts.add_up() {
            self.fail(&Error::bug(format!("the counts of this run do not add up: {counts:?}")));
            self.status = Status::Failed;
        }
    }

    pub fn exit_code(&self) -> u8 {
        match (self.status, self.cause) {
            (Status::Failed | Status::Running, Some(kind)) => kind.exit_code(),
            (Status::Failed | Status::Running, None) => 1,
            (Status::Partial, Some(kind @ (Kind::Unavailable | Kind::Unauthorized | Kind::Conflict))) => {
                kind.exit_code()
            }
            (Status::Partial, _) => 3,
            (Status::Held, _) => 4,
            (Status::Canceled, _) => 130,
            (Status::Ok, _) => 0,
        }
    }
}

/// An error, and how many others say the same of other keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Trouble<'r> {
    pub fault: &'r Fault,
    pub others: u64,
}

impl Trouble<'_> {
    /// What it is about: "votes/7 and 12 others".
    pub fn place(&self) -> Option<String> {
        let place = self.fault.place()?;
        Some(match self.others {
            0 => place.to_owned(),
            1 => format!("{place} and 1 other"),
            others => format!("{place} and {others} others"),
        })
    }
}

/// Errors that are not told where only so many troubles are.
pub fn untold(troubles: &[Trouble<'_>], told: usize) -> u64 {
    troubles.iter().skip(told).map(|trouble| 1 + trouble.others).sum()
}

/// What it says, whoever it is about: many are said to be in the same trouble, each by its own address.
fn namelessly<'f>(fault: &'f Fault, place: &str) -> Cow<'f, str> {
    let name = place.rsplit('/').next().unwrap_or_default();
    let is_apart = |beside: Option<char>| beside.is_none_or(|beside| !beside.is_alphanumeric());
    let whole = |at: usize| {
        is_apart(fault.message[..at].chars().next_back())
            && is_apart(fault.message[at + name.len()..].chars().next())
    };
    let last = fault.message.rmatch_indices(name).map(|(at, _)| at).find(|at| !name.is_empty() && whole(*at));
    match last {
        Some(at) => format!("{}…{}", &fault.message[..at], &fault.message[at + name.len()..]).into(),
        None => Cow::Borrowed(&fault.message),
    }
}

/// The gravest of several exit codes: 130 (a person stopped it), then 1, 2, 5, 6, 3, 4, 7, 0.
pub fn gravest(codes: impl IntoIterator<Item = u8>) -> u8 {
    const ORDER: [u8; 9] = [130, 1, 2, 5, 6, 3, 4, 7, 0];
    let rank = |code: &u8| ORDER.iter().position(|other| other == code).unwrap_or(1);
    codes.into_iter().min_by_key(rank).unwrap_or(0)
}

/// Whether what a scope said is what the run says of it.
fn says_the_same(of_scope: &Fault, fault: &Fault) -> bool {
    let Some(rest) = fault.message.strip_suffix(&of_scope.message) else { return false };
    let scope = of_scope.scope.as_deref().unwrap_or_default();
    of_scope.key.is_none()
        && of_scope.kind == fault.kind
        && (rest.is_empty() || rest.strip_suffix(": ") == Some(scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_say_the_same_are_told_once() {
        let mut report = Report::start("R".into(), "p", "manual", String::new());
        let gone = || Fault::of(&Error::new(Kind::Unavailable, "the store is gone"));
        for key in ["a", "b", "c"] {
            report.error(gone().at_key(key));
        }
        report.error(Fault::of(&Error::new(Kind::Invalid, "no row")).at_key("d"));
        report.error(gone());
        for id in ["1", "12", "127"] {
            let text = format!("GET http://127.0.0.1/votes/{id}: refused");
            report.error(Fault::of(&Error::new(Kind::Unavailable, text)).at_scope(format!("votes/{id}")));
        }
        report.error(
            Fault::of(&Error::new(Kind::Unavailable, "GET http://127.0.0.1/cases: refused"))
                .at_scope("cases"),
        );
        let troubles = report.troubles();
        let told: Vec<_> = troubles.iter().map(|one| (one.place(), one.fault.message.as_str())).collect();
        let wanted = [
            (Some("a and 2 others"), "the store is gone"),
            (Some("d"), "no row"),
            (None, "the store is gone"),
            (Some("votes/1 and 2 others"), "GET http://127.0.0.1/votes/1: refused"),
            (Some("cases"), "GET http://127.0.0.1/cases: refused"),
        ];
        assert_eq!(told, wanted.map(|(place, text)| (place.map(str::to_owned), text)));
    }

    #[test]
    fn a_run_does_not_repeat_what_its_only_scope_has_said() {
        let gone = |message: &str| Error::new(Kind::Unavailable, message.to_owned());
        for (scope, message, errors) in [
            ("cases", "cases: refused", 1),
            ("", "refused", 1),
            ("cases", "votes: refused", 2),
            ("cases", "nothing could be read: cases: refused (and 2 more)", 2),
        ] {
            let mut report = Report::start("R".into(), "p", "manual", String::new());
            report.error(Fault::of(&gone("refused")).at_scope(scope));
            report.fail(&gone(message));
            assert_eq!((report.errors.len(), report.cause), (errors, Some(Kind::Unavailable)), "{message}");
        }
    }
}
