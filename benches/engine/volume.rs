//! A folder of files against `rclone sync`, each on a file system of its own: after mass deletes, the same copy on
//! the same disk varies by an order of magnitude. Needs root (to mount) and the programs; says so if it cannot.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{thousands, trueup};
use crate::harness::{Bench, Measured, Outcome};

/// Files per folder.
const FOLDER: usize = 1_000;
const LENGTH: usize = 300;
/// Room for the files three times over, and the names that many take.
const IMAGE_BYTES: u64 = 4_000_000_000;
const INODES: &str = "1000000";

/// A fresh file system in a file, mounted until dropped.
struct Volume {
    folder: tempfile::TempDir,
}

fn ran(program: &str, arguments: &[&str]) -> Outcome<()> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", said.trim()).into()) }
}

fn text(path: &Path) -> Outcome<&str> {
    Ok(path.to_str().ok_or("an odd path")?)
}

impl Volume {
    /// Made, mounted and filled with files.
    fn with_files(count: usize) -> Outcome<Volume> {
        let folder = Bench::folder()?;
        let (image, top) = (folder.path().join("image"), folder.path().join("top"));
        std::fs::create_dir(&top)?;
        std::fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        ran("mkfs.ext4", &["-q", "-F", "-N", INODES, text(&image)?])?;
        ran("mount", &["-o", "loop", text(&image)?, text(&top)?])?;
        let volume = Volume { folder };
        for number in 0..count {
            let folder = volume.top().join(format!("files/{:03}", number / FOLDER));
            if number % FOLDER == 0 {
                std::fs::create_dir_all(&folder)?;
            }
            std::fs::write(folder.join(format!("{number:08}.txt")), super::line::value(number, 1, LENGTH))?;
        }
        ran("sync", &["-f", text(&volume.top())?])?;
        Ok(volume)
    }

    fn top(&self) -> PathBuf {
        self.folder.path().join("top")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Nothing better can be done about a volume that will not go.
        let _ = Command::new("umount").arg(self.top()).status();
    }
}

pub fn against_rclone(bench: &mut Bench) -> Outcome<()> {
    let size = bench.size(100_000, 5_000);
    let rclone =
        match measure(size, |top| Bench::program(Path::new("rclone"), &["sync", "files", "copy"], top)) {
            Ok(rclone) => rclone,
            Err(error) => {
                bench.unmeasured("against `rclone sync`", &error.to_string());
                return Ok(());
            }
        };
    for (into, name) in [("sqlite:store.db", "SQLite"), ("file:copy", "a folder, every file flushed to disk")]
    {
        let ours = measure(size, |top| sync(top, into))?;
        let count = thousands(size);
        bench.compared(
            &format!("{count} files into {name}, against `rclone sync`, first"),
            1.0,
            (rclone.0, ours.0),
        );
        bench.compared(
            &format!("{count} files into {name}, against `rclone sync`, no-op"),
            1.0,
            (rclone.1, ours.1),
        );
    }
    Ok(())
}

/// The first copy, once on a fresh volume, and the best of three that find nothing to do.
fn measure(size: usize, copy: impl Fn(&Path) -> Outcome<Measured>) -> Outcome<(Measured, Measured)> {
    let volume = Volume::with_files(size)?;
    let first = copy(&volume.top())?;
    let again = Bench::best(3, || copy(&volume.top()))?;
    Ok((first, again))
}

fn sync(top: &Path, into: &str) -> Outcome<Measured> {
    let config = format!("[pipelines.line]\nfrom = {{ files = \"files\" }}\ninto = \"{into}\"\n");
    std::fs::write(top.join("trueup.toml"), config)?;
    trueup(top, &["sync", "--quiet"])
}
