//! The tree as the rules read it: code as flat tokens, everything else as text.

use std::fs;
use std::path::{Component, Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Built, cloned or written by tests: not ours to judge.
const PASSED_OVER: [&str; 4] = ["target", ".git", ".trueup", "node_modules"];

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a folder at the top.
pub fn sources(top: &str) -> Vec<Source> {
    let code = files(Path::new(top)).into_iter().filter(|path| path.extension() == Some("rs".as_ref()));
    code.map(|path| Source::read(&path)).collect()
}

/// Every file of text in the project.
pub fn texts() -> Vec<(PathBuf, String)> {
    let all = files(Path::new("")).into_iter();
    all.filter_map(|path| fs::read_to_string(root().join(&path)).ok().map(|text| (path, text))).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(children) = fs::read_dir(root().join(folder)) else { return Vec::new() };
    let mut found = Vec::new();
    for child in children.map(Result::unwrap) {
        let (path, kind) = (folder.join(child.file_name()), child.file_type().unwrap());
        if PASSED_OVER.iter().any(|name| child.file_name() == *name) {
            continue;
        }
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A file of Rust as flat tokens: comments and the contents of strings cannot be mistaken for code.
pub struct Source {
    pub path: PathBuf,
    pub text: String,
    pub tokens: Vec<Token>,
}

impl Source {
    pub fn read(path: &Path) -> Self {
        Self::of(path, fs::read_to_string(root().join(path)).unwrap())
    }

    pub fn of(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        Source { path, text, tokens }
    }

    pub fn generated(&self) -> bool {
        self.text.lines().take(5).any(|line| line.contains("@generated"))
    }

    /// `store` for src/store/… and src/store.rs; none for the crate's roots.
    pub fn top_module(&self) -> Option<String> {
        let below = self.path.strip_prefix("src").ok()?;
        let Some(Component::Normal(first)) = below.components().next() else { return None };
        let name = first.to_str()?.trim_end_matches(".rs");
        (!["lib", "main"].contains(&name)).then(|| name.to_owned())
    }

    /// Top modules named by `crate::x`, `crate::{x, y::z}` or as many `super`s as lead to the crate.
    pub fn uses(&self) -> Vec<(String, usize)> {
        let depth = self.path.iter().count() - 1 - usize::from(self.path.ends_with("mod.rs"));
        let mut found = Vec::new();
        for at in 0..self.tokens.len() {
            if self.text_at(at) == "crate" && self.text_at(at + 1) == "::" {
                self.heads(at + 2, &mut found);
            }
            let supers = (0..)
                .take_while(|n| self.text_at(at + 2 * n) == "super" && self.text_at(at + 2 * n + 1) == "::");
            let supers = supers.count();
            if supers > 0 && supers >= depth {
                self.heads(at + 2 * supers, &mut found);
            }
        }
        found
    }

    /// The first names of a path or of each branch of a group.
    fn heads(&self, at: usize, found: &mut Vec<(String, usize)>) {
        if self.text_at(at) != "{" {
            found.extend(self.tokens.get(at).map(|token| (token.text.clone(), token.line)));
            return;
        }
        let mut depth = 0_usize;
        for (token, next) in self.tokens[at..].iter().zip(&self.tokens[at + 1..]) {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
            if depth == 1 && ["{", ","].contains(&token.text.as_str()) {
                found.push((next.text.clone(), next.line));
            }
        }
    }

    /// Name, first and last line of every function with a body.
    pub fn functions(&self) -> Vec<(String, usize, usize)> {
        let starts = self.tokens.windows(2).enumerate().filter(|(_, pair)| {
            pair[0].text == "fn"
                && pair[1].text.chars().all(|letter| letter == '_' || letter.is_alphanumeric())
        });
        starts
            .filter_map(|(at, pair)| {
                let body =
                    self.tokens[at..].iter().position(|token| ["{", ";"].contains(&token.text.as_str()))?;
                let last = self.closing(at + body)?;
                Some((pair[1].text.clone(), pair[0].line, last))
            })
            .collect()
    }

    /// The line of the brace that closes the one at `open`; none if there is no brace (a signature without a body).
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for token in &self.tokens[open..] {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return (token.text == "}").then_some(token.line);
            }
        }
        None
    }

    fn text_at(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis | Delimiter::None => ("(", ")"),
                };
                tokens.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line: group.span_close().end().line });
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => match tokens.last_mut() {
                Some(last) if last.text == ":" => last.text.push(':'),
                _ => tokens.push(Token { text: ":".to_owned(), line }),
            },
            other => tokens.push(Token { text: other.to_string(), line }),
        }
    }
}
