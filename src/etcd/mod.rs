//! A small etcd client: several endpoints, verified TLS, user and password, a deadline on every call.
//!
//! It refuses to retry a write: an answer that did not come says nothing about whether the write happened, and
//! only the caller knows how to find out. Reads move on to the next endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status, Streaming};

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

pub mod fault;
#[rustfmt::skip]
#[allow(clippy::all, clippy::pedantic)] // generated
mod generated;
mod handshake;
pub mod place;
pub mod request;

pub use generated::*;
pub use place::{EtcdPlace, Tls};

use generated::auth_client::AuthClient;
use generated::kv_client::KvClient;
use generated::lease_client::LeaseClient;
use generated::maintenance_client::MaintenanceClient;
use generated::watch_client::WatchClient;

/// A healthy server answers in milliseconds; a restarting one accepts connections seconds before it serves.
const CALL_MAX: Duration = Duration::from_secs(5);
/// A page of megabytes, or a transaction that waits for a slow disk.
const BULK_CALL_MAX: Duration = Duration::from_secs(30);
/// A token that lives for seconds may be old again before a busy server looks at it.
const RENEWALS_MAX: u32 = 3;
/// Long enough for a far server, short enough to try the next endpoint while a person waits.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A dead peer is noticed within the sum of these two, even on an idle watch. etcd ends connections that ask more often
/// than every five seconds, or while nothing is open on them.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(6);
const KEEPALIVE_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Pages aim at 8 MB; a page of values far larger than the ones before it must still fit.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Enough to keep a loopback or a data-centre link busy while the previous page is written.
const WINDOW_BYTES: u32 = 8 << 20;
/// Control messages of a watch: one per watcher that is opened or closed.
const WATCH_REQUESTS_MAX: usize = 256;

/// A handle on a cluster; cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    user: Option<(String, Secret)>,
    endpoints: Vec<String>,
    tls: Option<Tls>,
    channels: Vec<Channel>,
    current: AtomicUsize,
    token: Mutex<Option<MetadataValue<Ascii>>>,
}

/// An open watch stream: requests go in, responses of all its watchers come out.
pub struct WatchStream {
    pub requests: mpsc::Sender<WatchRequest>,
    pub responses: Streaming<WatchResponse>,
}

impl Client {
    /// Prepare a client. Nothing is contacted yet: the first call says whether the cluster answers.
    pub fn new(place: &EtcdPlace, password: Option<Secret>) -> Result<Self> {
        let password = password.or_else(|| place.password.clone());
        let user = match (&place.user, password) {
            (Some(user), Some(password)) => Some((user.clone(), password)),
            (None, None) => None,
            (Some(user), None) => {
                return Err(Error::new(Kind::Config, format!("the etcd user {user} has no password"))
                    .remedy_is("Give the password with `password_env` or `password_file`."));
            }
            (None, Some(_)) => return Err(Error::new(Kind::Config, "an etcd password without a user")),
        };
        let tls = place.tls.as_ref().map(tls_config).transpose()?;
        let channels = place
            .endpoints
            .iter()
            .map(|endpoint| channel(endpoint, tls.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        let (endpoints, tls) = (place.endpoints.clone(), place.tls.clone());
        let (current, token) = (AtomicUsize::new(0), Mutex::new(None));
        Ok(Client(Arc::new(Inner { user, endpoints, tls, channels, current, token })))
    }

    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse> {
        let max = if request.limit == 1 { CALL_MAX } else { BULK_CALL_MAX };
        self.read("reading from etcd", max, request, |channel, request| async move {
            kv(channel).range(request).await
        })
        .await
    }

    pub async fn status(&self) -> Result<StatusResponse> {
        self.read("asking etcd for its status", CALL_MAX, StatusRequest {}, |channel, request| async move {
            MaintenanceClient::new(channel).status(request).await
        })
        .await
    }

    /// A transaction. An `Unavailable` answer leaves open whether it happened.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse> {
        self.write("writing to etcd", BULK_CALL_MAX, request, |channel, request| async move {
            kv(channel).txn(request).await
        })
        .await
    }

    pub async fn put(&self, request: PutRequest) -> Result<PutResponse> {
        self.write("writing to etcd", CALL_MAX, request, |channel, request| async move {
            kv(channel).put(request).await
        })
        .await
    }

    pub async fn delete_range(&self, request: DeleteRangeRequest) -> Result<DeleteRangeResponse> {
        self.write("deleting from etcd", BULK_CALL_MAX, request, |channel, request| async move {
            kv(channel).delete_range(request).await
        })
        .await
    }

    pub async fn compact(&self, revision: i64) -> Result<CompactionResponse> {
        let request = CompactionRequest { revision, physical: true };
        self.write("compacting etcd", BULK_CALL_MAX, request, |channel, request| async move {
            kv(channel).compact(request).await
        })
        .await
    }

    pub async fn grant_lease(&self, ttl_seconds: i64) -> Result<LeaseGrantResponse> {
        let request = LeaseGrantRequest { ttl: ttl_seconds, id: 0 };
        self.write("taking an etcd lease", CALL_MAX, request, |channel, request| async move {
            LeaseClient::new(channel).lease_grant(request).await
        })
        .await
    }

    /// Open a watch stream with its first watcher; more are created by the requests sent into it.
    pub async fn watch(&self, first: WatchRequest) -> Result<WatchStream> {
        let (requests, receiver) = mpsc::channel(WATCH_REQUESTS_MAX);
        // The server says nothing, not even a header, before it is asked for something.
        requests.try_send(first).map_err(|_| Error::bug("a watch that takes no request"))?;
        // A watcher with an old token is told that it has no permission. With a fresh one, that is the truth.
        *self.0.token.lock().await = None;
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Some(token) = self.token().await? {
            request.metadata_mut().insert("token", token);
        }
        // A member cut off from its cluster must end the watch instead of staying silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut watch = WatchClient::new(self.channel()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let answer = tokio::time::timeout(CALL_MAX, watch.watch(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        match answer {
            Ok(response) => Ok(WatchStream { requests, responses: response.into_inner() }),
            Err(status) => Err(self.note(&status).await.while_("opening an etcd watch")),
        }
    }

    /// Turn what ended a stream into an error, and let the next call use another endpoint or a fresh token.
    pub async fn note(&self, status: &Status) -> Error {
        if fault::is_stale_token(status) {
            *self.0.token.lock().await = None;
        }
        self.explain(status).await
    }

    /// What an answer means; a server that does not serve is not asked next.
    async fn explain(&self, status: &Status) -> Error {
        let error = fault::from_status(status);
        if error.kind() != Kind::Unavailable {
            return error;
        }
        let endpoint = &self.0.endpoints[self.index()];
        self.0.current.fetch_add(1, Ordering::Relaxed);
        match &self.0.tls {
            Some(tls) if fault::is_cut_short(&error) => {
                handshake::refusal(endpoint, tls).await.unwrap_or(error)
            }
            _ => error,
        }
    }

    fn channel(&self) -> Channel {
        self.0.channels[self.index()].clone()
    }

    fn index(&self) -> usize {
        self.0.current.load(Ordering::Relaxed) % self.0.channels.len()
    }

    async fn read<Q, A, F>(
        &self,
        what: &str,
        max: Duration,
        request: Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut left = self.0.channels.len();
        loop {
            left -= 1;
            match self.write(what, max, request.clone(), &send).await {
                Err(error) if error.kind() == Kind::Unavailable && left > 0 => {}
                outcome => return outcome,
            }
        }
    }

    /// One call, once. A stale token is renewed and the call sent again: the server refused it unseen.
    async fn write<Q, A, F>(
        &self,
        what: &str,
        max: Duration,
        request: Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<A>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut renewed = 0;
        loop {
            let mut call = Request::new(request.clone());
            if let Some(token) = self.token().await? {
                call.metadata_mut().insert("token", token);
            }
            let answer = tokio::time::timeout(max, send(self.channel(), call)).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
            match answer {
                Ok(response) => return Ok(response.into_inner()),
                Err(status)
                    if fault::is_stale_token(&status) && self.0.user.is_some() && renewed < RENEWALS_MAX =>
                {
                    renewed += 1;
                    *self.0.token.lock().await = None;
                }
                Err(status) => return Err(self.note(&status).await.while_(what)),
            }
        }
    }

    async fn token(&self) -> Result<Option<MetadataValue<Ascii>>> {
        let Some((user, password)) = &self.0.user else { return Ok(None) };
        let mut token = self.0.token.lock().await;
        if token.is_none() {
            let request = AuthenticateRequest { name: user.clone(), password: password.expose().to_owned() };
            let mut auth = AuthClient::new(self.channel());
            let answer = tokio::time::timeout(CALL_MAX, auth.authenticate(request)).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
            match answer {
                Ok(response) => {
                    let fresh = response.into_inner().token;
                    *token = Some(fresh.parse().map_err(|_| Error::bug("an etcd token that is no header"))?);
                }
                // The cluster asks nobody for a password: so be it.
                Err(status) if fault::is_auth_disabled(&status) => return Ok(None),
                Err(status) => return Err(self.explain(&status).await.while_("signing in to etcd")),
            }
        }
        Ok(token.clone())
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

fn channel(endpoint: &str, tls: Option<&ClientTlsConfig>) -> Result<Channel> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let unusable = |error: tonic::transport::Error| {
        Error::new(Kind::Config, format!("the etcd endpoint {endpoint} is not usable: {error}"))
    };
    let mut target = Endpoint::from_shared(format!("{scheme}://{endpoint}")).map_err(unusable)?;
    if let Some(tls) = tls {
        target = target.tls_config(tls.clone()).map_err(unusable)?;
    }
    Ok(target
        .connect_timeout(CONNECT_MAX)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_ANSWER_MAX)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .connect_lazy())
}

fn tls_config(tls: &Tls) -> Result<ClientTlsConfig> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| {
            Error::new(Kind::Config, format!("{} is not usable for TLS: {error}", path.display()))
                .remedy_is("Give `tls`, `cert` and `key` PEM files that can be read.")
        })
    };
    let mut config = ClientTlsConfig::new();
    config = match &tls.authority {
        Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
        None => config.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name.clone());
    }
    Ok(config)
}

/// The revision an answer was given at; 0 when a server leaves the header out.
pub fn revision_of(header: Option<ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// The first key after every key with this prefix, as etcd's `range_end` wants it (`\0` = to the end).
pub fn range_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return Bytes::from(end);
        }
    }
    Bytes::from_static(b"\0")
}
