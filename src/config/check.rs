//! What only shows when the parts are seen together: two writers on one place, a pipeline that feeds on itself,
//! a state that cannot hold what it must.

use std::path::Path;

use super::locate::{Problems, Span};
use super::model::{From, Place, ShapeSpec, StoreSpec, Then};
use super::overlap::Spot;
use super::pipeline::Written;
use super::shape;
use super::source::glob_set;

/// A store that a pipeline writes into, and where that was written.
struct Writer<'w> {
    written: &'w Written,
    store: &'w StoreSpec,
    spot: Spot,
    span: &'w Span,
    exported: bool,
}

impl Writer<'_> {
    fn heads(&self) -> Vec<&str> {
        shape::heads(&self.written.pipeline.shape, self.exported)
    }
}

fn writers(written: &Written) -> impl Iterator<Item = Writer<'_>> {
    let exports = written.pipeline.then.iter().zip(&written.then).filter_map(|(then, span)| match then {
        Then::Export(store) => Some((store, span, true)),
        Then::Webhook(_) | Then::Command(_) => None,
    });
    let all = std::iter::once((&written.pipeline.into, &written.into, false)).chain(exports);
    all.map(move |(store, span, exported)| Writer { written, store, spot: Spot::of(store), span, exported })
}

const STATE_FORMS: &str = "expected sqlite:PATH, postgres://… or etcd://HOST:PORT/PREFIX/";

/// The state needs conditional writes and atomic batches.
pub fn state_can_hold(state: &StoreSpec, span: &Span, problems: &Problems<'_>) {
    match state.place {
        Place::Sqlite(_) | Place::Postgres(_) => {}
        Place::Etcd(_) => {
            if matches!(Spot::of(state), Spot::Objects { prefix, .. } if prefix.is_empty()) {
                problems.add_with(
                    span,
                    "the state needs a prefix of its own in etcd",
                    ["expected etcd://HOST:PORT/PREFIX/".to_owned()],
                );
            }
        }
        Place::Memory | Place::Folder(_) | Place::S3 { .. } | Place::Cloudflare { .. } | Place::Tables(_) => {
            problems.add_with(
                span,
                format!("the state cannot live in {}: it needs conditional and atomic writes", state.name),
                [STATE_FORMS.to_owned()],
            )
        }
    }
}

/// A store must not be the state's own file, nor a folder around it.
pub fn apart_from_state(store: &StoreSpec, state: &Spot, span: &Span, problems: &Problems<'_>) {
    if Spot::of(store).meets(state) {
        let message = format!("{} holds the state of trueup; it cannot hold data too", store.name);
        problems.add_with(span, message, ["give the data a file or folder of its own".to_owned()]);
    }
}

/// Every check that looks at pipelines.
pub fn pipelines(all: &[Written], state: &Spot, problems: &Problems<'_>) {
    let writers: Vec<Writer<'_>> = all.iter().flat_map(writers).collect();
    for (at, writer) in writers.iter().enumerate() {
        apart_from_state(writer.store, state, writer.span, problems);
        feeds_on_itself(writer, problems);
        if let Some(first) = writers[..at].iter().find(|first| meet(first, writer)) {
            two_writers(first, writer, problems);
        }
    }
    for written in all {
        articles_come_from_feeds(written, problems);
        rows_go_into_tables(written, problems);
        let own = writers.iter().filter(|writer| std::ptr::eq(writer.written, written));
        match &written.pipeline.from {
            From::Store { store, .. } => apart_from_state(store, state, &written.from, problems),
            From::Rss(_) | From::Rest(_) | From::Git(_) | From::Github(_) => {}
            From::Files { folder, include, exclude } => {
                let spots = own.map(|writer| &writer.spot).chain([state]);
                if let Some(at) = database_read(spots, folder, include, exclude) {
                    reads_a_database(written, &at, problems);
                }
            }
        }
    }
}

/// Two pipelines whose keys begin differently may share a place. One inside the other is as good as any key of it.
fn meet(first: &Writer<'_>, second: &Writer<'_>) -> bool {
    let apart = first.written.pipeline.name != second.written.pipeline.name
        && first.spot == second.spot
        && shape::are_apart(&first.heads(), &second.heads());
    !apart && first.spot.meets(&second.spot)
}

fn two_writers(first: &Writer<'_>, second: &Writer<'_>, problems: &Problems<'_>) {
    let (one, other) = (&first.written.pipeline.name, &second.written.pipeline.name);
    let (here, there) = (&first.store.name, &second.store.name);
    let message = format!("two writers whose keys overlap: `{one}` into {here} and `{other}` into {there}");
    let note = format!("the first is on line {}; give each a store of its own", problems.line(first.span));
    problems.add_with(second.span, message, [note]);
}

/// What is written must not be read again as a source.
fn feeds_on_itself(writer: &Writer<'_>, problems: &Problems<'_>) {
    let pipeline = &writer.written.pipeline;
    let feeds = match &pipeline.from {
        From::Store { store, .. } => Spot::of(store).meets(&writer.spot),
        From::Files { folder, exclude, .. } if matches!(writer.spot, Spot::Folder(_)) => {
            let source = Spot::folder(folder);
            match writer.spot.inside(&source) {
                // A target below the source is fine as long as everything in it is excluded.
                Some(at) if !at.is_empty() => !excluded(&at, exclude),
                _ => source.meets(&writer.spot),
            }
        }
        From::Files { .. } | From::Rss(_) | From::Rest(_) | From::Git(_) | From::Github(_) => false,
    };
    if feeds {
        let message = format!("`{}` would read what it writes: {}", pipeline.name, writer.store.name);
        let note = match &pipeline.from {
            From::Files { .. } => {
                "keep the folder and the store apart, or `exclude` the store from the folder"
            }
            From::Store { .. } | From::Rss(_) | From::Rest(_) | From::Git(_) | From::Github(_) => {
                "write into another store than the one it reads"
            }
        };
        problems.add_with(writer.span, message, [note.to_owned()]);
    }
}

fn excluded(folder: &str, exclude: &[String]) -> bool {
    // Two made-up names at two depths stand for whatever will be there.
    let probes = [format!("{folder}/\u{1}"), format!("{folder}/\u{1}/\u{1}")];
    glob_set(exclude).is_ok_and(|set| probes.iter().all(|probe| set.is_match(probe)))
}

/// The first database that lies in the source folder and is not left out of it.
fn database_read<'s>(
    spots: impl Iterator<Item = &'s Spot>,
    folder: &Path,
    include: &[String],
    exclude: &[String],
) -> Option<String> {
    let (wanted, unwanted) = (glob_set(include).ok()?, glob_set(exclude).ok()?);
    let source = Spot::folder(folder);
    let read = |at: &String| (include.is_empty() || wanted.is_match(at)) && !unwanted.is_match(at);
    spots.filter(|spot| matches!(spot, Spot::File(_))).filter_map(|spot| spot.inside(&source)).find(read)
}

/// An article is more than text: only a feed brings titles, days and attachments along.
fn articles_come_from_feeds(written: &Written, problems: &Problems<'_>) {
    let pipeline = &written.pipeline;
    if matches!(pipeline.shape, ShapeSpec::Article(_)) && !matches!(pipeline.from, From::Rss(_)) {
        let message = format!("`{}` makes articles, which only an `rss` source has", pipeline.name);
        problems.add_with(&written.from, message, ["use from = { rss = … }, or another shape".to_owned()]);
    }
}

/// Only a recipe says what columns there are, and tables hold nothing but rows.
fn rows_go_into_tables(written: &Written, problems: &Problems<'_>) {
    let pipeline = &written.pipeline;
    let rows = matches!(pipeline.shape, ShapeSpec::Rows(_));
    if rows && !matches!(pipeline.from, From::Rest(_)) {
        let message = format!("`{}` makes rows, which only a `rest` source has", pipeline.name);
        problems.add_with(&written.from, message, ["use from = { rest = … }, or another shape".to_owned()]);
    }
    if !rows && matches!(pipeline.into.place, Place::Tables(_)) {
        let message = format!("`{}` writes into tables, which hold rows", pipeline.name);
        problems.add_with(&written.into, message, ["use as = \"rows\", or another store".to_owned()]);
    }
}

/// Such a database changes with every run, so every run would find a change.
fn reads_a_database(written: &Written, at: &str, problems: &Problems<'_>) {
    let message = format!("`{}` would read the database it writes: {at}", written.pipeline.name);
    let pattern = at.rsplit_once('/').map_or_else(|| format!("{at}*"), |(folder, _)| format!("{folder}/**"));
    problems.add_with(&written.from, message, [format!("add exclude = [\"{pattern}\"]")]);
}
