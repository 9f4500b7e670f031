//! Blobs by their SHA, out of one `git cat-file --batch` that stays open. Requests that come together are sent
//! together, so several readers cost one round trip.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::program::Program;
use crate::error::{Error, Kind, Result, from_io};
use crate::source::files::VALUE_MAX;

/// Requests sent before the first answer is read. Their names fit a pipe many times over, so writing never waits for
/// reading.
const TOGETHER_MAX: usize = 256;

type Answer = oneshot::Sender<Result<Bytes>>;

struct Wanted {
    sha: String,
    answer: Answer,
}

/// A handle on the reading thread, which ends with its last handle.
#[derive(Clone)]
pub struct Blobs {
    wanted: Arc<mpsc::Sender<Wanted>>,
}

impl Blobs {
    pub fn new(program: Program) -> Self {
        let (wanted, queue) = mpsc::channel(TOGETHER_MAX);
        tokio::task::spawn_blocking(move || serve(&program, queue));
        Blobs { wanted: Arc::new(wanted) }
    }

    pub async fn read(&self, sha: &str) -> Result<Bytes> {
        if sha.is_empty() || !sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(gone());
        }
        let (answer, answered) = oneshot::channel();
        let ended = || Error::new(Kind::Unavailable, "git cat-file ended early");
        self.wanted.send(Wanted { sha: sha.to_owned(), answer }).await.map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn gone() -> Error {
    Error::new(Kind::Conflict, "the blob is no longer in the repository")
}

/// Answer until nobody asks any more. A process that broke is started again for the next request.
fn serve(program: &Program, mut queue: mpsc::Receiver<Wanted>) {
    let mut git: Option<Process> = None;
    let mut batch = Vec::new();
    while queue.blocking_recv_many(&mut batch, TOGETHER_MAX) > 0 {
        let started = git.take().map_or_else(|| Process::start(program), Ok);
        match started {
            Err(error) => {
                let said = error.to_string();
                for one in batch.drain(..) {
                    // Whoever stopped waiting needs no answer.
                    drop(one.answer.send(Err(Error::new(error.kind(), said.clone()))));
                }
            }
            Ok(mut process) => {
                if process.answer(&mut batch).is_ok() {
                    git = Some(process);
                }
                batch.clear();
            }
        }
    }
}

struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(program: &Program) -> Result<Self> {
        let mut child = program.blobs()?;
        let output = child.stdout.take().ok_or_else(|| Error::bug("git cat-file has no output"))?;
        Ok(Process { child, output: BufReader::with_capacity(128 * 1024, output) })
    }

    /// An error means that the process is of no use any more; those not answered see it end.
    fn answer(&mut self, batch: &mut Vec<Wanted>) -> Result<()> {
        let mut names = String::new();
        for one in batch.iter() {
            names.push_str(&one.sha);
            names.push('\n');
        }
        let input = self.child.stdin.as_mut().ok_or_else(|| Error::bug("git cat-file has no input"))?;
        input.write_all(names.as_bytes()).map_err(|error| from_io(error, "asking git cat-file"))?;
        for one in batch.drain(..) {
            let blob = self.blob()?;
            drop(one.answer.send(blob));
        }
        Ok(())
    }

    /// `SHA TYPE SIZE`, the bytes, a line feed; or `SHA missing`.
    #[allow(clippy::result_large_err)] // the outer error ends the process, the inner one is the answer
    fn blob(&mut self) -> Result<Result<Bytes>> {
        let mut head = String::new();
        let read = self.output.read_line(&mut head).map_err(|error| from_io(error, "reading a blob"))?;
        if read == 0 {
            return Err(Error::new(Kind::Unavailable, "git cat-file ended early"));
        }
        let mut words = head.trim_end().rsplit(' ');
        let (last, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Ok(size) = last.parse::<u64>() else { return Ok(Err(gone())) };
        if kind != "blob" || size > VALUE_MAX {
            self.skip(size + 1)?;
            let message = format!("a {kind} of {size} bytes; blobs of {VALUE_MAX} bytes at most are taken");
            return Ok(Err(Error::new(Kind::Invalid, message)));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.output.read_exact(&mut bytes).map_err(|error| from_io(error, "reading a blob"))?;
        self.skip(1)?;
        Ok(Ok(Bytes::from(bytes)))
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let mut rest = self.output.by_ref().take(bytes);
        std::io::copy(&mut rest, &mut std::io::sink())
            .map(drop)
            .map_err(|error| from_io(error, "reading a blob"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Without input it ends by itself; if it does not, it is ended.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
