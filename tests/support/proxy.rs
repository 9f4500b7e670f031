//! A TCP proxy that misbehaves on request: between trueup and a server it plays the network on a bad day.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use trueup::clock::{SharedClock, SystemClock};

/// How the network behaves now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Each piece of data arrives this much later.
    pub delay: Duration,
    /// Connections stay open and nothing passes, either way.
    pub half_open: bool,
    /// What the client sends goes through, what the server answers is lost, on this connection for good.
    pub lose_answers: bool,
    /// New connections are closed at once.
    pub refuse: bool,
    /// Raised to end every connection there is.
    cuts: u64,
}

pub struct Proxy {
    address: String,
    weather: Arc<watch::Sender<Weather>>,
}

impl Proxy {
    /// In front of `host:port`.
    pub async fn before(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let weather = Arc::new(watch::channel(Weather::default()).0);
        let (target, changes) = (target.to_owned(), weather.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, changes) = (target.clone(), changes.clone());
                if changes.borrow().refuse {
                    continue;
                }
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(target).await {
                        carry(client, server, changes).await;
                    }
                });
            }
        });
        Proxy { address, weather }
    }

    /// `host:port` to connect to instead of the server's.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// End every connection as a reset would; new ones are fine.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.cuts += 1);
    }

    /// Answers that were lost stay lost with the connections they were sent on; new ones work. In one step: between
    /// two, an answer that was to be lost could slip through.
    pub fn cut_what_lost_answers(&self) {
        self.weather.send_modify(|weather| {
            weather.lose_answers = false;
            weather.cuts += 1;
        });
    }

    /// Fair weather; connections stay as they are.
    pub fn clear_up(&self) {
        self.weather.send_modify(|weather| *weather = Weather { cuts: weather.cuts, ..Weather::default() });
    }

    pub fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.weather.send_modify(change);
    }
}

async fn carry(client: TcpStream, server: TcpStream, changes: watch::Receiver<Weather>) {
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let born = changes.borrow().cuts;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let clock = SystemClock::new();
    let asks = pass(&mut from_client, &mut to_server, changes.clone(), &clock, born, false);
    let answers = pass(&mut from_server, &mut to_client, changes.clone(), &clock, born, true);
    let mut changes = changes;
    tokio::select! {
        _ = changes.wait_for(|weather| weather.cuts != born) => {}
        () = asks => {}
        () = answers => {}
    }
}

async fn pass(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut changes: watch::Receiver<Weather>,
    clock: &SharedClock,
    born: u64,
    answers: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    // No network loses a part of a connection and delivers what comes after it: once lost, all of it is.
    let mut lost = false;
    loop {
        let Ok(size @ 1..) = from.read(&mut buffer).await else { return };
        if changes.wait_for(|weather| !weather.half_open).await.is_err() {
            return;
        }
        let weather = *changes.borrow();
        // What has arrived when the connection is cut goes no further.
        if weather.cuts != born {
            return;
        }
        lost |= answers && weather.lose_answers;
        if lost {
            continue;
        }
        if !weather.delay.is_zero() {
            clock.sleep(weather.delay).await;
        }
        if to.write_all(&buffer[..size]).await.is_err() {
            return;
        }
    }
}
