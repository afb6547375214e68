//! The server: a thread that accepts connections, and the inbox of all calls.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::ServerConfig;
use tokio::sync::{watch, Notify, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::connection;
use crate::protobuf::Items;
use crate::status::Status;
use crate::stream::{Chunk, Stream};

/// The limit of the bytes that wait for the caller. Above it, no call reads more messages.
const INBOX_BYTES_MAX: usize = 32 << 20;
/// A call with fewer bytes of an unfinished message is never ended because of others.
const UNFINISHED_BYTES_FREE: usize = 64 << 10;
/// The bytes of messages after which a turn takes no further one.
const TURN_BYTES: usize = 2 << 20;

/// How the messages of a method are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As they are.
    Raw,
    /// `URLItem` in columns.
    Items,
    /// `DiscoveredBatch` in columns.
    Batches,
}

/// How long items are gathered at most. This is also the longest delay that it adds to an acknowledgement.
const GATHER_MAX: Duration = Duration::from_millis(25);
/// Gathering ends if no item arrived for this time.
const GATHER_STEP: Duration = Duration::from_millis(4);
/// The items of a turn that is large enough: its fixed price is small for each of them.
const GATHERED_ITEMS: usize = 2_048;

/// What a server is made of.
pub struct Settings {
    /// The paths of its calls, how their messages are given, and the largest message of each.
    pub methods: Vec<(String, Kind, usize)>,
    /// Certificate chain and key in PEM; None for plain HTTP/2.
    pub tls: Option<(Vec<u8>, Vec<u8>)>,
    /// The limit of the bytes of messages that have not arrived whole. Above it, calls with many of them are ended.
    pub unfinished_bytes_max: usize,
    /// Calls at once of one connection.
    pub streams_max: u32,
    /// Connections at once.
    pub connections_max: usize,
}

/// What happened.
pub enum Event {
    /// A call began.
    Opened {
        /// Its number.
        stream: u64,
        /// The place of its method.
        method: usize,
        /// The value of the header.
        authorization: Option<String>,
        /// The address of the client.
        peer: Arc<str>,
    },
    /// A message arrived.
    Message {
        /// The call.
        stream: u64,
        /// How the messages of its method are given.
        kind: Kind,
        /// The octets.
        message: Bytes,
    },
    /// The client has sent all messages.
    Ended {
        /// The call.
        stream: u64,
    },
    /// The call was cancelled, broken, or is past its deadline.
    Gone {
        /// The call.
        stream: u64,
        /// How many messages were handed to the connection.
        sent: u64,
    },
    /// There is room for more answers.
    Room {
        /// The call.
        stream: u64,
    },
}

impl Event {
    /// Whether it is a message with items, which may wait for further ones.
    fn is_item(&self) -> bool {
        matches!(self, Self::Message { kind, .. } if *kind != Kind::Raw)
    }
}

/// The waiting events of all calls, by kind.
#[derive(Default)]
pub struct Taken {
    /// Calls that began: number, method, header, address.
    pub opened: Vec<(u64, usize, Option<String>, Arc<str>)>,
    /// Messages as they are.
    pub messages: Vec<(u64, Bytes)>,
    /// Messages in columns.
    pub items: Items,
    /// Calls whose client has sent all.
    pub ended: Vec<u64>,
    /// Calls that are gone, and how many answers were handed over.
    pub gone: Vec<(u64, u64)>,
    /// Calls with room.
    pub room: Vec<u64>,
    /// Bytes of the messages, by call.
    pub sizes: HashMap<u64, usize>,
}

#[derive(Default)]
struct Inbox {
    events: std::collections::VecDeque<Event>,
}

/// What the threads share.
pub(crate) struct Shared {
    methods: HashMap<String, usize>,
    kinds: Vec<(Kind, usize)>,
    inbox: Mutex<Inbox>,
    bell: Condvar,
    bytes: AtomicUsize,
    unfinished: AtomicUsize,
    room: Notify,
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
    /// The caller waits for more items: only other events wake it.
    gathers: AtomicBool,
    /// Rung when the last open call has ended.
    idle: Condvar,
    last: AtomicU64,
    closing: watch::Sender<bool>,
    woken: AtomicBool,
    unfinished_bytes_max: usize,
    pub(crate) streams_max: u32,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn method(&self, path: &str) -> Option<usize> {
        self.methods.get(path).copied()
    }

    pub(crate) fn message_bytes_max(&self, method: usize) -> usize {
        self.kinds[method].1
    }

    pub(crate) fn kind(&self, method: usize) -> Kind {
        self.kinds[method].0
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.last.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn open(&self, stream: &Arc<Stream>, event: Event) {
        self.streams().insert(stream.id, Arc::clone(stream));
        self.push(event);
    }

    pub(crate) fn forget(&self, stream: u64) {
        let mut streams = self.streams();
        streams.remove(&stream);
        if streams.is_empty() {
            self.idle.notify_all();
        }
    }

    pub(crate) fn push(&self, event: Event) {
        if let Event::Message { message, .. } = &event {
            self.bytes.fetch_add(message.len() + 5, Ordering::SeqCst);
        }
        let is_item = event.is_item();
        self.inbox().events.push_back(event);
        if !(is_item && self.gathers.load(Ordering::SeqCst)) {
            self.bell.notify_one();
        }
    }

    pub(crate) async fn has_room(&self) {
        while self.bytes.load(Ordering::SeqCst) > INBOX_BYTES_MAX {
            let freed = self.room.notified();
            if self.bytes.load(Ordering::SeqCst) > INBOX_BYTES_MAX {
                freed.await;
            }
        }
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

/// The bytes of the unfinished message of one call.
pub(crate) struct Unfinished {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Unfinished {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), bytes: 0 }
    }

    /// Sets the number of bytes. Returns whether they fit into the limit for all calls together.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let all = &self.shared.unfinished;
        all.fetch_add(bytes, Ordering::SeqCst);
        let total = all.fetch_sub(self.bytes, Ordering::SeqCst) - self.bytes;
        self.bytes = bytes;
        bytes <= UNFINISHED_BYTES_FREE || total <= self.shared.unfinished_bytes_max
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.shared.unfinished.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// A server and its thread.
pub struct Server {
    shared: Arc<Shared>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn acceptor(tls: &(Vec<u8>, Vec<u8>)) -> Result<TlsAcceptor, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&tls.0)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&tls.1)
        .map_err(|error| format!("the key cannot be read: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl Server {
    /// Serves the connections of a listening socket.
    ///
    /// # Errors
    /// In words, for a certificate that cannot be used, and where no thread can be started.
    pub fn start(listener: TcpListener, settings: Settings) -> Result<Self, String> {
        let tls = settings.tls.as_ref().map(acceptor).transpose()?;
        let shared = Arc::new(Shared {
            methods: settings
                .methods
                .iter()
                .enumerate()
                .map(|(place, one)| (one.0.clone(), place))
                .collect(),
            kinds: settings.methods.iter().map(|one| (one.1, one.2)).collect(),
            inbox: Mutex::default(),
            bell: Condvar::new(),
            bytes: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            room: Notify::new(),
            streams: Mutex::default(),
            gathers: AtomicBool::new(false),
            idle: Condvar::new(),
            last: AtomicU64::new(0),
            closing: watch::channel(false).0,
            woken: AtomicBool::new(false),
            unfinished_bytes_max: settings.unfinished_bytes_max,
            streams_max: settings.streams_max,
        });
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let of_thread = Arc::clone(&shared);
        // A thread takes the mask of the one that makes it: no signal may reach it before it runs.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let thread = std::thread::Builder::new()
            .name("outrider-wire".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(of_thread, listener, tls, settings.connections_max) => {}
                        _ = stopped => {}
                    }
                });
                runtime.shutdown_timeout(Duration::from_millis(100));
            })
            .map_err(|error| error.to_string());
        if let Ok(mask) = before {
            let _ = mask.thread_set_mask();
        }
        Ok(Self { shared, stop: Some(stop), thread: Some(thread?) })
    }

    /// Waits while items arrive and nothing else does: a turn has a fixed price, and a client that does not wait for its
    /// acknowledgements sends more soon.
    pub fn gather(&self) {
        let until = Instant::now() + GATHER_MAX;
        let mut before = usize::MAX;
        self.shared.gathers.store(true, Ordering::SeqCst);
        loop {
            let inbox = self.shared.inbox();
            let count = inbox.events.len();
            let is_over = count == before // the clients wait
                || count >= GATHERED_ITEMS
                || self.shared.bytes.load(Ordering::SeqCst) > TURN_BYTES
                || inbox.events.iter().any(|event| !event.is_item())
                || self.shared.woken.load(Ordering::SeqCst)
                || Instant::now() >= until;
            if is_over {
                break;
            }
            before = count;
            drop(self.shared.bell.wait_timeout(inbox, GATHER_STEP));
        }
        self.shared.gathers.store(false, Ordering::SeqCst);
    }

    /// Waits for the first event and returns all events that have arrived; None after the time without an event.
    #[must_use]
    pub fn take(&self, wait: Duration) -> Option<Taken> {
        let until = Instant::now() + wait;
        let mut taken = Taken::default();
        let mut bytes = 0;
        let events = {
            let mut inbox = self.shared.inbox();
            while inbox.events.is_empty() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || self.shared.woken.swap(false, Ordering::SeqCst) {
                    return None;
                }
                inbox = self
                    .shared
                    .bell
                    .wait_timeout(inbox, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            let mut count = 0;
            for event in &inbox.events {
                if let Event::Message { message, .. } = event {
                    bytes += message.len() + 5;
                }
                count += 1;
                if bytes > TURN_BYTES {
                    break;
                }
            }
            inbox.events.drain(..count).collect::<Vec<_>>()
        };
        self.shared.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.shared.room.notify_waiters();
        for event in events {
            match event {
                Event::Opened { stream, method, authorization, peer } => {
                    taken.opened.push((stream, method, authorization, peer));
                }
                Event::Message { stream, kind, message } => {
                    *taken.sizes.entry(stream).or_default() += message.len() + 5;
                    match kind {
                        Kind::Items => taken.items.add_item(stream, &message),
                        Kind::Batches => taken.items.add_batch(stream, &message),
                        Kind::Raw => taken.messages.push((stream, message)),
                    }
                }
                Event::Ended { stream } => taken.ended.push(stream),
                Event::Gone { stream, sent } => taken.gone.push((stream, sent)),
                Event::Room { stream } => taken.room.push(stream),
            }
        }
        Some(taken)
    }

    fn stream(&self, stream: u64) -> Option<Arc<Stream>> {
        self.shared.streams().get(&stream).map(Arc::clone)
    }

    /// Sends messages of a call together. Returns whether there is room for more. A call that is gone has none.
    #[must_use]
    pub fn send(&self, stream: u64, chunk: Chunk) -> bool {
        self.stream(stream).is_some_and(|one| one.send(chunk))
    }

    /// Ends a call with a status, after its answers.
    pub fn finish(&self, stream: u64, status: Status) {
        if let Some(one) = self.stream(stream) {
            one.finish(status);
        }
    }

    /// The messages of a turn are answered, so their calls may send more.
    pub fn answered(&self, sizes: &HashMap<u64, usize>) {
        for (stream, bytes) in sizes {
            if let Some(one) = self.stream(*stream) {
                one.answered(*bytes);
            }
        }
    }

    /// Ends a waiting `take`.
    pub fn wake(&self) {
        self.shared.woken.store(true, Ordering::SeqCst);
        self.shared.bell.notify_all();
    }

    /// Returns when no call is open, or after this time.
    pub fn wait_idle(&self, wait: Duration) {
        let streams = self.shared.streams();
        let waited = self.shared.idle.wait_timeout_while(streams, wait, |open| !open.is_empty());
        drop(waited);
    }

    /// Tells the clients to begin no more calls here.
    pub fn drain(&self) {
        let _ = self.shared.closing.send(true);
    }

    /// Ends all connections.
    pub fn close(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections_max: usize,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(connections_max));
    let mut closing = shared.closing();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.changed() => break,
        };
        match accepted {
            Ok((socket, _)) => {
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    connection::run(shared, socket, tls).await;
                    drop(place);
                });
            }
            // Without descriptors another try at once would fail as well.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    drop(listener);
    std::future::pending::<()>().await;
}
