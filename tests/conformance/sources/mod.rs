//! What every source promises; what each kind promises besides is in its own file.

use std::collections::BTreeMap;

use trueup::error::{Kind, Result};
use trueup::record::Entry;
use trueup::source::{Cursors, Event, Source, channel};

mod files;
mod remote;
mod store;

/// What a source holds: id → body.
type Holding = BTreeMap<String, Vec<u8>>;

fn holding(files: &[(&str, &str)]) -> Holding {
    files.iter().map(|(id, body)| ((*id).to_owned(), body.as_bytes().to_vec())).collect()
}

/// The promises of the trait, on a source that holds exactly this and is in good health.
async fn source_conforms(source: &dyn Source, holding: &Holding) {
    let first = list(source).await.unwrap();
    let entries = seen(&first);
    let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    if source.sorted() {
        assert!(ids.windows(2).all(|pair| pair[0].as_bytes() < pair[1].as_bytes()), "byte order: {ids:?}");
    }
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, holding.keys().collect::<Vec<_>>(), "every entry, and each once");
    completes_every_scope_it_names(&first);

    for entry in &entries {
        let body = source.open(entry).await.unwrap();
        assert_eq!(body.bytes, holding[&entry.id], "the body of {}", entry.id);
        assert_eq!(body.version, entry.version, "the version of {}", entry.id);
    }

    gives_bodies_together(source, &entries, holding).await;

    let again = list(source).await.unwrap();
    assert_eq!(told(&first), told(&again), "reading twice says the same");

    // Where the listing brings the bodies along, there is nothing to ask for.
    if entries.iter().any(|entry| entry.inline.is_none()) {
        let stranger = Entry::new("no/such/entry", &"no/such".into(), "1");
        assert_eq!(source.open(&stranger).await.unwrap_err().kind(), Kind::Conflict);
    }
    source.check().await.unwrap();
}

/// All of them, or the first ones as far as they fit: never none, never more than that, each in its place.
async fn gives_bodies_together(source: &dyn Source, entries: &[Entry], holding: &Holding) {
    let entries: Vec<&Entry> = entries.iter().collect();
    for (at_once, bytes_max) in [(4, usize::MAX), (4, 1), (1, 1), (4, 20_000)] {
        let bodies = source.open_all(&entries, at_once, bytes_max).await;
        assert!(!bodies.is_empty() || entries.is_empty(), "one at least");
        let mut bytes = 0;
        for (entry, body) in entries.iter().zip(&bodies) {
            let body = body.as_ref().unwrap();
            assert_eq!(body.bytes, holding[&entry.id], "the body of {} among others", entry.id);
            bytes += body.bytes.len();
        }
        let largest = holding.values().map(Vec::len).max().unwrap_or(0);
        if bodies.len() < entries.len() {
            assert!(bytes >= bytes_max, "{bytes} B are not as much as fits into {bytes_max}");
        }
        // Sixteen are asked for while nobody knows how large they are.
        assert!(bytes <= bytes_max.saturating_add(16 * largest), "{bytes} B instead of {bytes_max}");
    }
}

/// Every scope lies within one that is said to be complete (or a window, which proves nothing absent), and that is said
/// after the last entry in it.
fn completes_every_scope_it_names(events: &[Event]) {
    for (at, event) in events.iter().enumerate() {
        let Event::Seen(entry) = event else { continue };
        let proven = events[at..].iter().any(|later| {
            matches!(later, Event::Complete(scope, _) | Event::Window(scope, _)
                if scope.is_empty() || *entry.scope == **scope || entry.scope.starts_with(&format!("{scope}/")))
        });
        assert!(proven, "{} lies in a scope that never completes", entry.id);
    }
}

async fn list(source: &dyn Source) -> Result<Vec<Event>> {
    let (mut sink, mut events) = channel();
    let reading = async {
        let mut all = Vec::new();
        while let Some(batch) = events.recv().await {
            all.extend(batch);
        }
        all
    };
    let listing = async move {
        source.list(&Cursors::new(), &mut sink).await?;
        sink.flush().await
    };
    let (listed, all) = futures::join!(listing, reading);
    listed.map(|()| all)
}

fn seen(events: &[Event]) -> Vec<Entry> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Seen(entry) => Some(entry.clone()),
            _ => None,
        })
        .collect()
}

fn told(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| format!("{event:?}")).collect()
}
