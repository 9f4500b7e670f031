//! How a pipeline is, in one word and a colour. `true` is only said when nothing speaks against it.

use maud::{Markup, html};

use super::words::many;
use crate::schedule::overview::One;
use crate::state::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Held,
    Late,
    Run,
    Idle,
}

impl Tone {
    pub fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Held => "held",
            Tone::Late => "late",
            Tone::Run => "run",
            Tone::Idle => "idle",
        }
    }

    pub fn of(status: Status) -> Self {
        match status {
            Status::Ok => Tone::Good,
            Status::Held => Tone::Held,
            Status::Running => Tone::Run,
            Status::Partial | Status::Failed | Status::Canceled => Tone::Bad,
        }
    }
}

/// What may be said about a pipeline, the gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Failing,
    Held,
    Late,
    Running,
    Paused,
    New,
    True,
}

pub const CLASSES: [Class; 7] =
    [Class::True, Class::Failing, Class::Held, Class::Late, Class::Running, Class::Paused, Class::New];

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Failing => "failing",
            Class::Held => "held",
            Class::Late => "late",
            Class::Running => "running",
            Class::Paused => "paused",
            Class::New => "new",
            Class::True => "true",
        }
    }

    pub fn tone(self) -> Tone {
        match self {
            Class::Failing => Tone::Bad,
            Class::Held => Tone::Held,
            Class::Late => Tone::Late,
            Class::Running => Tone::Run,
            Class::Paused | Class::New => Tone::Idle,
            Class::True => Tone::Good,
        }
    }
}

/// Something said about a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub class: Class,
    pub text: String,
}

/// What is known beside the pipeline's own state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    /// Its last run could not even start.
    pub not_started: bool,
}

/// Everything to be said, the gravest first; never nothing.
pub fn marks(one: &One, beside: Beside) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut say = |class, text: String| marks.push(Mark { class, text });
    if beside.not_started {
        say(Class::Failing, "cannot start".into());
    }
    if matches!(one.status, "failed" | "partial" | "interrupted" | "canceled") {
        say(Class::Failing, one.status.into());
    }
    if one.dead > 0 {
        say(Class::Failing, many(one.dead, "dead letter"));
    }
    if one.held > 0 || one.status == "held" {
        say(Class::Held, format!("{} held", super::words::grouped(one.held)));
    }
    if one.late.is_some() {
        say(Class::Late, "late".into());
    }
    if one.running {
        say(Class::Running, "running".into());
    }
    if !one.enabled {
        say(Class::Paused, "off".into());
    } else if one.paused.is_some() {
        say(Class::Paused, "paused".into());
    }
    if one.status == "never" && !one.running {
        say(Class::New, "never run".into());
    }
    if marks.is_empty() {
        marks.push(Mark { class: Class::True, text: "true".into() });
    }
    marks
}

pub fn badge(tone: Tone, text: &str) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (text) } }
}

pub fn badges(marks: &[Mark]) -> Markup {
    html! { span.badges { @for mark in marks { (badge(mark.class.tone(), &mark.text)) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(status: &'static str) -> One {
        One {
            pipeline: "p".into(),
            enabled: true,
            running: false,
            status,
            last_run: None,
            finished: None,
            held: 0,
            failed: 0,
            unproven: 0,
            dead: 0,
            when: None,
            tz: "UTC".into(),
            next: None,
            paused: None,
            plan: None,
            holder: None,
            late: None,
            report: None,
        }
    }

    #[test]
    fn true_is_only_said_when_nothing_speaks_against_it() {
        let plain = Beside::default();
        let class = |one: &One, beside| marks(one, beside)[0].class;
        assert_eq!(class(&one("ok"), plain), Class::True);
        for status in ["failed", "partial", "interrupted", "canceled"] {
            assert_eq!(class(&one(status), plain), Class::Failing, "{status}");
        }
        assert_eq!(class(&one("held"), plain), Class::Held);
        assert_eq!(class(&One { held: 3, ..one("ok") }, plain), Class::Held);
        assert_eq!(class(&One { dead: 1, ..one("ok") }, plain), Class::Failing);
        assert_eq!(class(&one("ok"), Beside { not_started: true }), Class::Failing);
        assert_eq!(class(&One { late: Some("x".into()), ..one("ok") }, plain), Class::Late);
        assert_eq!(class(&One { running: true, ..one("running") }, plain), Class::Running);
        assert_eq!(class(&One { paused: Some("x".into()), ..one("ok") }, plain), Class::Paused);
        assert_eq!(class(&One { enabled: false, ..one("ok") }, plain), Class::Paused);
        assert_eq!(class(&one("never"), plain), Class::New);
    }
}
