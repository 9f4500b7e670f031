//! The plan: what a pass would do, item by item, without values.

use std::hash::Hasher as _;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::error::Result;
use crate::record::{Entry, Fingerprint, Scope, Version};
use crate::state::Base;
use crate::state::held::HeldItem;
use crate::state::journal::Change;

/// Why a change is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// Not known before.
    New,
    /// The content changed (the name is the one users of git and of checksums know).
    Sha,
    Path,
    Title,
    Checksum,
    /// The store was changed behind our back.
    Drift,
    /// Gone from the source.
    Absent,
    /// Older than it is to be kept.
    Expired,
}

impl Why {
    pub fn name(self) -> &'static str {
        match self {
            Why::New => "new",
            Why::Sha => "sha",
            Why::Path => "path",
            Why::Title => "title",
            Why::Checksum => "checksum",
            Why::Drift => "drift",
            Why::Absent => "absent",
            Why::Expired => "expired",
        }
    }
}

/// What is to be done about one identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub identity: String,
    pub scope: Scope,
    pub action: Action,
    /// The source's stamp; `None` when it is absent there.
    pub stamp: Option<Fingerprint>,
    pub entry: Option<Entry>,
    /// The baseline record, when there is one.
    pub base: Option<Box<Kept>>,
    /// The store's version as seen in this pass, where its listing was joined.
    pub seen: Seen,
    /// The fingerprint it will have, where it is known before the body is read.
    pub after: Option<Fingerprint>,
}

/// A baseline record as it travels with a plan: its stamp, and JSON that is decoded once, by whoever asks first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    pub stamp: Fingerprint,
    json: String,
    #[serde(skip)]
    decoded: OnceLock<Base>,
}

impl Kept {
    pub fn new(stamp: Fingerprint, json: String) -> Self {
        Kept { stamp, json, decoded: OnceLock::new() }
    }

    fn base(&self, identity: &str) -> Result<&Base> {
        if let Some(base) = self.decoded.get() {
            return Ok(base);
        }
        let base = crate::state::decode(identity, self.json.as_bytes())?;
        Ok(self.decoded.get_or_init(|| base))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.stamp == other.stamp && self.json == other.json
    }
}

/// What the store's own listing said about the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// The listing was not joined.
    NotAsked,
    Nothing,
    At(Version),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    Change(Change, Why),
    /// The content is the same, only the stamp is new: state is told, the store is not touched.
    Restamp,
}

impl Step {
    pub fn base(&self) -> Result<Option<(Fingerprint, &Base)>> {
        self.base.as_ref().map(|kept| Ok((kept.stamp, kept.base(&self.identity)?))).transpose()
    }

    pub fn change(&self) -> Option<Change> {
        match self.action {
            Action::Change(change, _) => Some(change),
            Action::Restamp => None,
        }
    }

    /// What people decide about: the content where it is known, else the source's stamp; `None` = absent. File times
    /// change without the content changing, and a decision must not be forgotten over that.
    pub fn mark(&self) -> Option<Fingerprint> {
        self.stamp.map(|stamp| self.after.unwrap_or(stamp))
    }

    /// The key, as far as it is known before rendering.
    pub fn key(&self, key_prefix: Option<&str>) -> Result<String> {
        if let Some((_, base)) = self.base()? {
            return Ok(base.key(&self.identity).to_owned());
        }
        Ok(key_prefix.map_or_else(|| self.identity.clone(), |prefix| format!("{prefix}{}", self.identity)))
    }
}

/// The content-addressed id of a plan: the same changes for the same reasons have the same id, in whatever order they
/// were found (a scope that was read brings its items earlier than one that was not).
#[derive(Default)]
pub struct PlanId {
    pipeline: String,
    /// The sum of the items' hashes, lane by lane.
    sum: [u64; 4],
    items: u64,
}

impl PlanId {
    pub fn of(pipeline: &str) -> Self {
        PlanId { pipeline: pipeline.to_owned(), sum: [0; 4], items: 0 }
    }

    /// What is carried out anyway. Nobody is asked about it, and there is one for every new key: a hash that tells of chance
    /// will do, in a quarter of the time.
    pub fn add(
        &mut self,
        identity: &str,
        change: Change,
        stamp: Option<Fingerprint>,
        before: Option<Fingerprint>,
    ) {
        let mut hash = SipHasher13::new_with_keys(change as u64, identity.len() as u64);
        hash.write(identity.as_bytes());
        hash.write(&bytes(stamp));
        hash.write(&bytes(before));
        let (one, other) = hash.finish128().as_u64();
        self.sum_up([one, other]);
    }

    /// What a person is to decide on, by this very id.
    pub fn add_held(&mut self, held: &HeldItem) {
        let parts = [held.identity.as_bytes(), &[held.change as u8], &bytes(held.stamp), &bytes(None)];
        let item = Fingerprint::of_parts(&parts);
        let lane = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        self.sum_up(item.0.as_chunks().0.iter().map(lane));
    }

    fn sum_up(&mut self, lanes: impl IntoIterator<Item = u64>) {
        for (sum, lane) in self.sum.iter_mut().zip(lanes) {
            *sum = sum.wrapping_add(lane);
        }
        self.items += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Twelve hex digits: short enough to type, long enough never to meet another by chance.
    pub fn finish(&self) -> String {
        let sum: Vec<u8> = self.sum.iter().flat_map(|lane| lane.to_be_bytes()).collect();
        let parts = [b"trueup plan 1".as_slice(), self.pipeline.as_bytes(), &self.items.to_be_bytes(), &sum];
        hex::encode(&Fingerprint::of_parts(&parts).0[..6])
    }
}

/// What is not there is no hash of anything.
fn bytes(print: Option<Fingerprint>) -> [u8; 32] {
    print.map_or([0; 32], |print| print.0)
}
