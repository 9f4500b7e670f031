//! Keeps a watch open and turns what it brings into batches of whole revisions.
//!
//! It checkpoints from events and from the server's own progress notices only: an answer to a progress request has
//! been seen to claim revisions that were never sent.

use tokio::sync::mpsc;

use super::apply::Batch;
use super::stagger::{self, Command, Sample, Stagger, Step};
use crate::error::{Error, Kind, Result};
use crate::etcd::watch_request::RequestUnion;
use crate::etcd::{
    Client, RangeRequest, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse, WatchStream,
    fault, range_end, request, revision_of,
};

/// Batches between the watch and the writer: with the bytes of each (about a megabyte at most) this bounds what is in
/// memory. Many of a backlog's are small; the watch must not wait while those are written.
pub(super) const BATCHES_AHEAD: usize = 16;

/// Read from a revision on, until something ends it. Runs as a task of its own.
pub(super) async fn read(
    etcd: Client,
    prefix: String,
    from: i64,
    batches: mpsc::Sender<Batch>,
) -> Result<std::convert::Infallible> {
    let sample = sample(&etcd, &prefix, from).await?;
    let (mut stagger, mut first) = Stagger::new(from, sample);
    let mut stream = etcd.watch(request_of(&prefix, first.remove(0))).await?;
    send(&stream, &prefix, first).await?;
    let mut accepted = false;
    loop {
        let response = match stream.responses.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return Err(Error::new(Kind::Unavailable, "etcd closed the watch")),
            Err(status) => return Err(etcd.note(&status).await.while_("watching etcd")),
        };
        check_canceled(&response, accepted)?;
        accepted |= response.created && !response.canceled;
        let revision = revision_of(response.header);
        if response.created || response.canceled {
            continue;
        }
        if response.events.is_empty() && !response.fragment {
            // An answer to a progress request carries the id -1 and is no proof; we never ask.
            if let Some(upto) = stagger.progress(response.watch_id, revision) {
                hand_on(&batches, Batch::nothing_upto(upto)).await?;
            }
            continue;
        }
        let Step { batches: ready, commands } =
            stagger.receive(response.watch_id, response.events, response.fragment, revision);
        send(&stream, &prefix, commands).await?;
        for batch in ready {
            hand_on(&batches, batch).await?;
        }
    }
}

/// Keys looked at to guess how large all are.
const SAMPLE: i64 = 100;

/// How far behind we are and, if that is far, how large what comes will be.
async fn sample(etcd: &Client, prefix: &str, from: i64) -> Result<Sample> {
    let newest = revision_of(etcd.range(request::key(prefix.to_owned())).await?.header);
    if !stagger::is_far_behind(from, newest) {
        return Ok(Sample::default());
    }
    let (key, range_end) = (prefix.to_owned().into(), range_end(prefix.as_bytes()));
    match etcd.range(RangeRequest { key, range_end, limit: SAMPLE, ..RangeRequest::default() }).await {
        Ok(answer) => Ok(Sample::of(newest, &answer.kvs)),
        // So large that one watcher is enough.
        Err(error) if fault::is_answer_too_large(&error) => Ok(Sample::default()),
        Err(error) => Err(error),
    }
}

async fn hand_on(batches: &mpsc::Sender<Batch>, batch: Batch) -> Result<()> {
    batches.send(batch).await.map_err(|_| Error::new(Kind::Canceled, "nobody takes what the watch brings"))
}

async fn send(stream: &WatchStream, prefix: &str, commands: Vec<Command>) -> Result<()> {
    for command in commands {
        let sent = stream.requests.send(request_of(prefix, command)).await;
        sent.map_err(|_| Error::new(Kind::Unavailable, "etcd closed the watch"))?;
    }
    Ok(())
}

fn request_of(prefix: &str, command: Command) -> WatchRequest {
    let union = match command {
        Command::Open { id, start } => RequestUnion::CreateRequest(WatchCreateRequest {
            key: prefix.to_owned().into(),
            range_end: range_end(prefix.as_bytes()),
            start_revision: start,
            progress_notify: true,
            watch_id: id,
            fragment: true,
        }),
        Command::Close { id } => RequestUnion::CancelRequest(WatchCancelRequest { watch_id: id }),
    };
    WatchRequest { request_union: Some(union) }
}

/// A watcher the server ended: compaction and denial look alike but for two fields. A later watcher of a stream whose
/// first one was `accepted` is denied when the stream's token has expired: a new stream has a new one.
fn check_canceled(response: &WatchResponse, accepted: bool) -> Result<()> {
    if !response.canceled {
        return Ok(());
    }
    if response.compact_revision > 0 {
        let message = format!("etcd has compacted its history up to revision {}", response.compact_revision);
        return Err(Error::new(Kind::CursorLost, message));
    }
    let reason = response.cancel_reason.as_str();
    if reason.contains("permission denied")
        || (response.created && response.watch_id < 0 && reason.is_empty())
    {
        let kind = if accepted { Kind::Unavailable } else { Kind::Unauthorized };
        return Err(Error::new(kind, "etcd does not let us watch the prefix"));
    }
    if !reason.is_empty() {
        return Err(Error::new(Kind::Unavailable, format!("etcd ended the watch: {reason}")));
    }
    // The answer to a cancel of ours.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_final_only_for_the_first_watcher_of_a_stream() {
        let reason = "etcdserver: permission denied".to_owned();
        let denied = WatchResponse {
            created: true,
            canceled: true,
            watch_id: -1,
            cancel_reason: reason,
            ..WatchResponse::default()
        };
        let kind = |accepted| check_canceled(&denied, accepted).unwrap_err().kind();
        assert_eq!((kind(false), kind(true)), (Kind::Unauthorized, Kind::Unavailable));
        let compacted = WatchResponse { canceled: true, compact_revision: 7, ..WatchResponse::default() };
        assert_eq!(check_canceled(&compacted, true).unwrap_err().kind(), Kind::CursorLost);
        let asked = WatchResponse { canceled: true, watch_id: 3, ..WatchResponse::default() };
        assert!(check_canceled(&asked, true).is_ok());
    }
}
