//! What only shows when the parts are seen together: two writers on one place, a pipeline that feeds on itself,
//! a state that cannot hold what it must.

use super::locate::{Problems, Span};
use super::model::{From, Place, StoreSpec, Then};
use super::overlap;
use super::pipeline::Written;
use super::shape;
use super::source::glob_set;

/// A store that a pipeline writes into, and where that was written.
struct Writer<'w> {
    written: &'w Written,
    store: &'w StoreSpec,
    span: &'w Span,
}

fn writers(written: &Written) -> impl Iterator<Item = Writer<'_>> {
    let into = Writer { written, store: &written.pipeline.into, span: &written.into };
    let exports =
        written.pipeline.then.iter().zip(&written.then).filter_map(move |(then, span)| match then {
            Then::Export(store) => Some(Writer { written, store, span }),
            Then::Webhook(_) | Then::Command(_) => None,
        });
    std::iter::once(into).chain(exports)
}

/// The state needs conditional writes and atomic batches.
pub fn state_can_hold(state: &StoreSpec, span: &Span, problems: &Problems<'_>) {
    match state.place {
        Place::Sqlite(_) => {}
        Place::Memory | Place::Folder(_) | Place::S3 { .. } => problems.add_with(
            span,
            format!("the state cannot live in {}: it needs conditional and atomic writes", state.name),
            ["expected sqlite:PATH".to_owned()],
        ),
    }
}

/// A store of `[stores]` or of a pipeline must not be the state's own file.
pub fn apart_from_state(store: &StoreSpec, state: &StoreSpec, span: &Span, problems: &Problems<'_>) {
    let within = match (&state.place, &store.place) {
        (Place::Sqlite(file), Place::Folder(folder)) => overlap::inside(file, folder).is_some(),
        _ => false,
    };
    if within || overlap::stores(store, state) {
        let message = format!("{} holds the state of trueup; it cannot hold data too", store.name);
        problems.add_with(span, message, ["give the data a file or folder of its own".to_owned()]);
    }
}

/// Every check that looks at pipelines.
pub fn pipelines(all: &[Written], state: &StoreSpec, problems: &Problems<'_>) {
    for written in all {
        for writer in writers(written) {
            apart_from_state(writer.store, state, writer.span, problems);
            feeds_on_itself(&writer, problems);
        }
        if let From::Store { store, .. } = &written.pipeline.from {
            apart_from_state(store, state, &written.from, problems);
        }
        reads_a_database(written, state, problems);
    }
    let writers: Vec<Writer<'_>> = all.iter().flat_map(writers).collect();
    for (at, second) in writers.iter().enumerate() {
        if let Some(first) = writers[..at].iter().find(|first| meet(first, second)) {
            two_writers(first, second, problems);
        }
    }
}

fn meet(first: &Writer<'_>, second: &Writer<'_>) -> bool {
    let (one, other) = (&first.written.pipeline, &second.written.pipeline);
    let apart = one.name != other.name && shape::disjoint(&one.shape, &other.shape);
    !apart && overlap::stores(first.store, second.store)
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
    let feeds = match (&pipeline.from, &writer.store.place) {
        (From::Store { store, .. }, _) => overlap::stores(store, writer.store),
        (From::Files { folder, exclude, .. }, Place::Folder(target)) => {
            // A target below the source is fine as long as everything in it is excluded.
            match overlap::inside(target, folder) {
                Some(at) if !at.is_empty() => !excluded(&at, exclude),
                Some(_) => true,
                None => overlap::inside(folder, target).is_some(),
            }
        }
        (From::Files { .. }, _) => false,
    };
    if feeds {
        let message = format!("`{}` would read what it writes: {}", pipeline.name, writer.store.name);
        let note = match &pipeline.from {
            From::Files { .. } => {
                "keep the folder and the store apart, or `exclude` the store from the folder"
            }
            From::Store { .. } => "write into another store than the one it reads",
        };
        problems.add_with(writer.span, message, [note.to_owned()]);
    }
}

fn excluded(folder: &str, exclude: &[String]) -> bool {
    // Two made-up names at two depths stand for whatever will be there.
    let probes = [format!("{folder}/\u{1}"), format!("{folder}/\u{1}/\u{1}")];
    glob_set(exclude).is_ok_and(|set| probes.iter().all(|probe| set.is_match(probe)))
}

/// A database that lies in the source folder changes with every run, so every run would find a change.
fn reads_a_database(written: &Written, state: &StoreSpec, problems: &Problems<'_>) {
    let From::Files { folder, include, exclude } = &written.pipeline.from else { return };
    let (Ok(wanted), Ok(unwanted)) = (glob_set(include), glob_set(exclude)) else { return };
    for store in writers(written).map(|writer| writer.store).chain([state]) {
        let Place::Sqlite(file) = &store.place else { continue };
        let Some(at) = overlap::inside(file, folder) else { continue };
        if (include.is_empty() || wanted.is_match(&at)) && !unwanted.is_match(&at) {
            let message = format!("`{}` would read the database it writes: {at}", written.pipeline.name);
            let parent = at.rsplit_once('/').map_or_else(|| format!("{at}*"), |(dir, _)| format!("{dir}/**"));
            problems.add_with(&written.from, message, [format!("add exclude = [\"{parent}\"]")]);
            return;
        }
    }
}
