//! One suite per trait, run over every implementation and wrapper: what a trait's documentation promises.

mod sources;
