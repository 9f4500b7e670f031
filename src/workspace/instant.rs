//! How instants are kept: UTC, milliseconds, read in whatever notation they were written.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de};

use crate::clock::rfc3339_ms;

/// Cut to milliseconds, so that what is kept equals what is compared.
pub fn to_ms(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339_ms(*at))
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(to_ms).map_err(de::Error::custom)
}

/// The same for an instant that may be missing.
pub mod option {
    use super::{Timestamp, de, rfc3339_ms, to_ms};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => to.serialize_some(&rfc3339_ms(*at)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map(to_ms).map_err(de::Error::custom)).transpose()
    }
}
