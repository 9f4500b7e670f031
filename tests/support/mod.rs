//! What tests share: real servers on free loopback ports, temp folders, the built program.

pub mod s3;
