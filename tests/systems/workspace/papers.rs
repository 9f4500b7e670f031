//! Real documents, made by real tools: PDFs by ReportLab, Word files by python-docx, both from PyPI.

use std::path::Path;
use std::process::Command;

use crate::support::python;

const PACKAGES: &str = "reportlab==5.1.0 python-docx==1.2.0 font-roboto==0.0.1";
const SCRIPT: &str = include_str!("../../fixtures/workspace/papers.py");

/// Write a document of one of the script's kinds, with this text in it.
pub fn make(kind: &str, to: &Path, text: &str) {
    let home = python::with("papers", PACKAGES);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let made =
        Command::new(home.join("bin/python")).args(["-c", SCRIPT, kind]).arg(to).arg(text).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

pub fn pdf(to: &Path, text: &str) {
    make("plain", to, text);
}
