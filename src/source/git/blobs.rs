//! Blobs by their SHA, out of one `git cat-file --batch` that stays open, on a thread of its own: what was asked for is
//! read whether or not anybody waits for it at the moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::program::Program;
use crate::error::{Error, Kind, Result, from_io};
use crate::portion::Portion;
use crate::source::files::VALUE_MAX;
use crate::source::object_id;

/// Names sent ahead of the answers. They fit a pipe many times over, so writing never waits for reading.
const TOGETHER_MAX: usize = 256;
/// Readers that wait for their turn.
const QUEUE_MAX: usize = 64;

struct Wanted {
    shas: Vec<String>,
    bytes_max: usize,
    answer: oneshot::Sender<Vec<Result<Bytes>>>,
}

/// A handle on the reading thread, which ends with its last handle.
#[derive(Clone)]
pub struct Blobs {
    wanted: Arc<mpsc::Sender<Wanted>>,
}

impl Blobs {
    pub fn new(program: Program) -> Self {
        let (wanted, queue) = mpsc::channel(QUEUE_MAX);
        tokio::task::spawn_blocking(move || serve(&program, queue));
        Blobs { wanted: Arc::new(wanted) }
    }

    pub async fn read(&self, sha: &str) -> Result<Bytes> {
        self.read_all(vec![sha.to_owned()], usize::MAX).await.pop().unwrap_or_else(|| Err(ended_early()))
    }

    /// As many of the first as make up so many bytes, and one at least.
    pub async fn read_all(&self, shas: Vec<String>, bytes_max: usize) -> Vec<Result<Bytes>> {
        let (answer, answered) = oneshot::channel();
        if self.wanted.send(Wanted { shas, bytes_max, answer }).await.is_err() {
            return vec![Err(ended_early())];
        }
        answered.await.unwrap_or_else(|_| vec![Err(ended_early())])
    }
}

fn gone() -> Error {
    Error::new(Kind::Conflict, "the blob is no longer in the repository")
}

fn ended_early() -> Error {
    Error::new(Kind::Unavailable, "git cat-file ended early")
}

/// Answer until nobody asks any more. A process that broke is started again for the next request.
fn serve(program: &Program, mut queue: mpsc::Receiver<Wanted>) {
    let mut git: Option<Process> = None;
    while let Some(wanted) = queue.blocking_recv() {
        let mut blobs = Vec::with_capacity(wanted.shas.len());
        match git.take().map_or_else(|| Process::start(program), Ok) {
            // It would not start for the next ones either.
            Err(error) => {
                let same = || Err(Error::new(error.kind(), error.to_string()));
                blobs.extend(wanted.shas.iter().map(|_| same()));
            }
            Ok(mut process) => match process.answer(&wanted.shas, wanted.bytes_max, &mut blobs) {
                Ok(()) => git = Some(process),
                // What came before it broke is good. What it broke at has this answer, the rest is asked for again.
                Err(error) => blobs.push(Err(error)),
            },
        }
        // Whoever stopped waiting needs no answer.
        drop(wanted.answer.send(blobs));
    }
}

fn is_name(sha: &str) -> bool {
    !sha.is_empty() && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
}

struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    /// Of an object that is damaged.
    remedy: String,
}

impl Process {
    fn start(program: &Program) -> Result<Self> {
        let mut child = program.blobs()?;
        let output = child.stdout.take().ok_or_else(|| Error::bug("git cat-file has no output"))?;
        let output = BufReader::with_capacity(128 * 1024, output);
        Ok(Process { child, output, remedy: program.mended_by() })
    }

    /// An error means that the process is of no use any more.
    fn answer(&mut self, shas: &[String], bytes_max: usize, blobs: &mut Vec<Result<Bytes>>) -> Result<()> {
        let mut portion = Portion::of(bytes_max);
        let mut asked = 0;
        loop {
            let window = portion.room().min(TOGETHER_MAX);
            // Not one by one: each time both sides have to wake up.
            if asked - blobs.len() <= window / 2 {
                let upto = shas.len().min(blobs.len() + window);
                self.ask(shas.get(asked..upto).unwrap_or_default())?;
                asked = asked.max(upto);
            }
            if window == 0 {
                // They grew larger than anybody could know; what was asked for in vain is asked for again.
                return (blobs.len()..asked).try_for_each(|at| self.pass_over(&shas[at]));
            }
            if blobs.len() == asked {
                return Ok(());
            }
            let sha = &shas[blobs.len()];
            let blob = if is_name(sha) { self.blob(sha)? } else { Err(gone()) };
            portion.add(blob.as_ref().map_or(0, Bytes::len));
            blobs.push(blob);
        }
    }

    fn ask(&mut self, shas: &[String]) -> Result<()> {
        let mut names = String::new();
        for sha in shas.iter().filter(|sha| is_name(sha)) {
            names.push_str(sha);
            names.push('\n');
        }
        let input = self.child.stdin.as_mut().ok_or_else(|| Error::bug("git cat-file has no input"))?;
        input.write_all(names.as_bytes()).map_err(|error| from_io(error, "asking git cat-file"))
    }

    /// `SHA TYPE SIZE`, then the bytes and a line feed; or `SHA missing`, which has no size.
    fn head(&mut self) -> Result<(String, Option<u64>)> {
        let mut head = String::new();
        let read = self.output.read_line(&mut head).map_err(|error| from_io(error, "reading a blob"))?;
        if read == 0 {
            return Err(ended_early());
        }
        let mut words = head.trim_end().rsplit(' ');
        let (last, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Ok((kind.to_owned(), last.parse().ok()))
    }

    fn pass_over(&mut self, sha: &str) -> Result<()> {
        if !is_name(sha) {
            return Ok(());
        }
        match self.head()? {
            (_, Some(size)) => self.skip(size + 1),
            (_, None) => Ok(()),
        }
    }

    #[allow(clippy::result_large_err)] // the outer error ends the process, the inner one is the answer
    fn blob(&mut self, sha: &str) -> Result<Result<Bytes>> {
        let (kind, size) = self.head()?;
        let Some(size) = size else { return Ok(Err(gone())) };
        if kind != "blob" || size > VALUE_MAX {
            self.skip(size + 1)?;
            let message = format!("a {kind} of {size} bytes; blobs of {VALUE_MAX} bytes at most are taken");
            return Ok(Err(Error::new(Kind::Invalid, message)));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.output.read_exact(&mut bytes).map_err(|error| from_io(error, "reading a blob"))?;
        self.skip(1)?;
        // Git hands out what lies in the place of an object; only its `fsck` looks whether it belongs there.
        let whole = object_id::check_blob(sha, &bytes).map_err(|error| error.remedy_is(&self.remedy));
        Ok(whole.map(|()| Bytes::from(bytes)))
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
