//! The real program, from the outside: what it prints, how it ends, and what it leaves behind.

mod bad_input;
mod check;
mod codes;
mod decided;
mod help;
pub mod home;
mod https;
mod keys;
pub mod killed;
mod legible;
mod plans;
mod reports;
mod secrets;
mod several;
mod stdout;
mod stopped;
mod untouched;
mod upgrade;
