//! The systems built on the engine, each against the servers it is for.

mod replica;
