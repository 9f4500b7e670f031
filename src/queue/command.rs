//! A command as follow-up work: JSON on its input, an exit code as its answer. Its output is read while its input is
//! written, so neither can block the other, and only the end of the output is kept.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::Task;
use super::effect::Done;
use crate::config::Command;
use crate::error::{Error, Fault, Kind, from_io};

/// How much of a command's output is kept with a failure.
const OUTPUT_MAX: usize = 4_000;
/// What a program leaves running may hold its output open for ever: after its end, no more than this is waited.
const DRAIN: Duration = Duration::from_secs(1);

pub async fn run(command: &Command, task: &Task, input: &[u8]) -> Done {
    let (child, mut family) = match start(command, task) {
        Ok(started) => started,
        // A program that cannot be started fails every task alike; only an odd key is the task's own fault.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            return Done::Failed(Fault::of(&from_io(error, doing(command))));
        }
        Err(error) => {
            let error =
                from_io(error, doing(command)).remedy_is("Check that the program exists and may be run.");
            return Done::HandedBack(Fault::of(&error));
        }
    };
    let mut said = Said::default();
    let ended = match tokio::time::timeout(command.timeout, attend(child, input, &mut said)).await {
        Err(_) => {
            let message =
                format!("{} did not end within {:?}{}", command.program, command.timeout, said.last_words());
            return failed(
                Error::new(Kind::Invalid, message).remedy_is("Make it quicker, or raise `timeout`."),
            );
        }
        Ok(Err(error)) => return failed(from_io(error, doing(command))),
        Ok(Ok(ended)) => ended,
    };
    // It ended by itself: what it meant to leave running may run.
    family.leader = None;
    if ended.success() {
        return Done::Well;
    }
    let message = format!("{} ended with {ended}{}", command.program, said.last_words());
    failed(
        Error::new(Kind::Invalid, message)
            .remedy_is("Correct the command or its input, then `trueup dead retry`."),
    )
}

fn doing(command: &Command) -> String {
    format!("running {}", command.program)
}

#[allow(clippy::needless_pass_by_value)] // the error ends here
fn failed(error: Error) -> Done {
    Done::Failed(Fault::of(&error))
}

/// A program and whatever it started. Killed when it is dropped: a timeout ends all of it.
struct Family {
    leader: Option<Pid>,
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // Gone already is as good.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }
}

fn start(command: &Command, task: &Task) -> std::io::Result<(Child, Family)> {
    let child = tokio::process::Command::new(&command.program)
        .args(&command.args)
        .current_dir(&command.folder)
        .env("TRUEUP_KEY", &task.key)
        .env("TRUEUP_CHANGE", task.change.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    Ok((child, Family { leader }))
}

/// The end of what a program said.
#[derive(Default)]
struct Said {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Said {
    /// Errors if there are any: that is where programs say what went wrong.
    fn last_words(&self) -> String {
        let words = if self.err.is_empty() { &self.out } else { &self.err };
        let text = String::from_utf8_lossy(&words[words.len().saturating_sub(OUTPUT_MAX)..]);
        let text = text.trim();
        if text.is_empty() { String::new() } else { format!(": {text}") }
    }
}

/// Give it its input, hear it out, wait for its end.
async fn attend(mut child: Child, input: &[u8], said: &mut Said) -> std::io::Result<ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input is no error; its exit code decides.
            drop(stdin.write_all(input).await);
        }
    };
    let talk = async { tokio::join!(feed, hear(stdout, &mut said.out), hear(stderr, &mut said.err)) };
    let mut talk = std::pin::pin!(talk);
    tokio::select! {
        _ = &mut talk => child.wait().await,
        ended = child.wait() => {
            drop(tokio::time::timeout(DRAIN, talk).await);
            ended
        }
    }
}

async fn hear(from: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..read]);
        if kept.len() > 4 * OUTPUT_MAX {
            kept.drain(..kept.len() - OUTPUT_MAX);
        }
    }
}
