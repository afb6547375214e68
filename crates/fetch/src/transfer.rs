//! One request and its answer: connect, handshake, send, receive, each within its time; and how it ended.

use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustls::{CertificateError, ClientConfig};
use tokio::io::ReadBuf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep_until, timeout_at, Instant, Sleep};
use tokio_rustls::TlsConnector;

use crate::inbox::Inbox;
use crate::kept::{taken, Connection, Kept, Origin};
use crate::large::{Large, Share};
use crate::message::{HeadLimits, Message, Progress};
use crate::room::TypeLimits;
use crate::tls::{name_of, Configs};

/// Bytes that are read at once, into one buffer for all connections of a thread: a host that is silent costs none.
const READ_BYTES: usize = 64 << 10;
/// Words for a large answer that waited too long for others.
const NO_ROOM: &str = "no room for more of it beside other large answers";

/// Why there is no whole answer; the names are those of `FetchError` in `outrider.fetch.failures`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The answer is whole, or a part that counts as a page.
    None = 0,
    /// There is no route to the address.
    Unreachable,
    /// The address refuses the connection.
    ConnectRefused,
    /// There was no connection in its time, TLS included.
    ConnectTimeout,
    /// No common protocol, or a certificate that does not prove the name.
    Tls,
    /// The request was sent, and no whole head came.
    FirstByteTimeout,
    /// The head came, then the body stopped.
    IdleTimeout,
    /// Bytes came, too slowly for a whole head.
    TotalTimeout,
    /// The connection broke before a whole head.
    Reset,
    /// The connection was closed without a byte.
    EmptyReply,
    /// The answer is not HTTP/1.x, or its chunks are not chunks.
    Malformed,
    /// More lines or bytes of head than the limits.
    TooManyHeaders,
    /// A bug or a shortage on this side.
    Internal,
}

/// Why a body ends early: the words of WARC-Truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Truncated {
    /// It does not.
    No = 0,
    /// It is longer than its room.
    Length,
    /// Its time was over.
    Time,
    /// The other side closed the connection.
    Disconnect,
    /// Its framing is broken.
    Unspecified,
}

/// The bounds of one request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Head and body together, where the type has no limit of its own; more is cut.
    pub bytes_max: usize,
    /// For the connection, TLS included.
    pub connect: Duration,
    /// Between the request, two lines of the head, and two pieces of the body.
    pub idle: Duration,
    /// For all of it.
    pub total: Duration,
    /// Bytes a second, from the head on, that a body must bring on average once `rate_after` has passed; 0 for any.
    pub rate_min: u32,
    /// When the rate is first looked at.
    pub rate_after: Duration,
}

/// How a request is protected on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tls {
    /// Not at all.
    None,
    /// By TLS with a host that proves its name.
    Verified,
    /// By TLS with whoever answers.
    Unverified,
}

/// One request, to exactly one address.
#[derive(Clone, Debug)]
pub struct Job {
    /// The caller's name for it.
    pub id: u64,
    /// Whether it goes over TLS.
    pub tls: Tls,
    /// The host as the certificate must prove it.
    pub host: String,
    /// Where it goes; nothing else is connected to.
    pub address: SocketAddr,
    /// The bytes that are sent.
    pub head: Vec<u8>,
    /// Whether a new connection is made in any case, and closed in the end.
    pub fresh: bool,
    /// The bounds of this request.
    pub limits: Limits,
    /// Bytes of a body by its type, without its head.
    pub types: Option<Arc<TypeLimits>>,
    /// When it was handed over.
    pub submitted: Instant,
}

/// How a request ended. `raw` has the final answer's bytes as they came, its head first.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The caller's name for the request.
    pub id: u64,
    /// Why there is no whole answer.
    pub fault: Fault,
    /// Why the body ends early.
    pub truncated: Truncated,
    /// Words about it.
    pub text: String,
    /// The status of a whole head, else 0.
    pub status: u16,
    /// Whether bytes of the request were sent.
    pub sent: bool,
    /// Whether a connection was made for it.
    pub new_connection: bool,
    /// Whether two readers may see different ends of this answer.
    pub ambiguous: bool,
    /// Whether a kept connection was closed instead of an answer.
    pub kept_died: bool,
    /// Head and body.
    pub raw: Vec<u8>,
    /// Bytes of the head in them; 0 when it is not whole.
    pub head_bytes: usize,
    /// From the beginning to the first byte of the answer; None where none came.
    pub first_byte: Option<Duration>,
    /// From the connection to the last byte, without the handshake of TLS and without waits for room here.
    pub took: Duration,
    /// How long it waited here before it began.
    pub waited: Duration,
    /// From its beginning to its end, all in all.
    pub lasted: Duration,
    /// Whether it was left out: the request before it in its train did not end well.
    pub left_out: bool,
}

impl Answer {
    pub(crate) fn empty(id: u64, fault: Fault, text: &str) -> Self {
        Self {
            id,
            fault,
            truncated: Truncated::No,
            text: text.to_owned(),
            status: 0,
            sent: false,
            new_connection: false,
            ambiguous: false,
            kept_died: false,
            raw: Vec::new(),
            head_bytes: 0,
            first_byte: None,
            took: Duration::ZERO,
            waited: Duration::ZERO,
            lasted: Duration::ZERO,
            left_out: false,
        }
    }

    pub(crate) fn left_out(id: u64) -> Self {
        Self { left_out: true, ..Self::empty(id, Fault::None, "") }
    }

    /// Whether its site is well: a whole head without a refusal. missing: further statuses of a site that is.
    pub(crate) fn is_well(&self, missing: &[u16]) -> bool {
        self.fault == Fault::None
            && self.status > 0
            && (self.status < 400 || missing.contains(&self.status))
    }

    /// Bytes that it holds, with some for itself.
    pub(crate) fn bytes(&self) -> usize {
        self.raw.capacity() + self.text.len() + 256
    }
}

/// All that the transfers of one thread share.
pub(crate) struct Desk {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) large: Arc<Large>,
    pub(crate) kept: RefCell<Kept>,
    pub(crate) busy: Cell<usize>,
    pub(crate) connections_max: usize,
    pub(crate) keep: Duration,
    pub(crate) heads: HeadLimits,
    pub(crate) tls: Configs,
    scratch: RefCell<Vec<u8>>,
}

impl Desk {
    pub(crate) fn new(
        inbox: Arc<Inbox>,
        large: Arc<Large>,
        tls: Configs,
        heads: HeadLimits,
        connections_max: usize,
        keep: Duration,
    ) -> Self {
        Self {
            inbox,
            large,
            kept: RefCell::default(),
            busy: Cell::new(0),
            connections_max,
            keep,
            heads,
            tls,
            scratch: RefCell::new(vec![0; READ_BYTES]),
        }
    }
}

/// Counts a transfer that runs, however it ends.
struct Busy(Rc<Desk>);

impl Busy {
    fn new(desk: &Rc<Desk>) -> Self {
        desk.busy.set(desk.busy.get() + 1);
        Self(Rc::clone(desk))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
    }
}

struct End {
    fault: Fault,
    truncated: Truncated,
    text: String,
}

impl End {
    fn new(fault: Fault, truncated: Truncated, text: impl Into<String>) -> Self {
        Self { fault, truncated, text: text.into() }
    }

    fn fault(fault: Fault, text: impl Into<String>) -> Self {
        Self::new(fault, Truncated::No, text)
    }
}

/// The times of one transfer; waits for room here push them back.
struct Times {
    limits: Limits,
    began: Instant,
    handshake: Duration,
    paused: Duration,
    active: Instant,
    body_began: Instant,
    first_byte: Option<Duration>,
}

impl Times {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            limits,
            began: now,
            handshake: Duration::ZERO,
            paused: Duration::ZERO,
            active: now,
            body_began: now,
            first_byte: None,
        }
    }

    fn total_at(&self) -> Instant {
        self.began + self.limits.total + self.paused
    }

    fn connect_at(&self) -> Instant {
        self.total_at().min(self.began + self.limits.connect)
    }

    fn pause(&mut self, took: Duration) {
        self.paused += took;
        self.active += took;
        self.body_began += took;
    }

    fn silent_at(&self) -> Instant {
        self.active + self.limits.idle
    }

    /// When a body that brings nothing more has come too slowly.
    fn slow_at(&self, message: &Message) -> Option<Instant> {
        if self.limits.rate_min == 0 || !message.has_head() {
            return None;
        }
        let earned = message.body_bytes() as f64 / f64::from(self.limits.rate_min);
        let earned = Duration::try_from_secs_f64(earned).unwrap_or(Duration::MAX);
        self.body_began.checked_add(earned.max(self.limits.rate_after))
    }

    fn next(&self, message: &Message) -> Instant {
        let next = self.total_at().min(self.silent_at());
        self.slow_at(message).map_or(next, |slow| slow.min(next))
    }

    /// The limit that has passed.
    fn passed(&self, message: &Message, now: Instant) -> Option<End> {
        let whole = message.has_head();
        if now >= self.total_at() {
            let text = format!("not finished in {} s", self.limits.total.as_secs_f64());
            return Some(if whole {
                End::new(Fault::None, Truncated::Time, text)
            } else if message.lines == 0 {
                End::fault(Fault::FirstByteTimeout, text)
            } else {
                End::fault(Fault::TotalTimeout, text)
            });
        }
        if now >= self.silent_at() {
            let text = format!("nothing came for {} s", self.limits.idle.as_secs_f64());
            return Some(if whole {
                End::new(Fault::IdleTimeout, Truncated::Time, text)
            } else {
                End::fault(Fault::FirstByteTimeout, text)
            });
        }
        if self.slow_at(message).is_some_and(|slow| now >= slow) {
            let text = format!("slower than {} bytes a second", self.limits.rate_min);
            return Some(End::new(Fault::None, Truncated::Time, text));
        }
        None
    }

    fn took(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.handshake).saturating_sub(self.paused)
    }
}

/// Asks, and gives the answer; it never fails otherwise.
pub(crate) async fn transfer(desk: &Rc<Desk>, job: Job) -> Answer {
    desk.inbox.has_room().await;
    let _busy = Busy::new(desk);
    let mut times = Times::new(job.limits);
    let mut message = Message::new(job.limits.bytes_max, job.types, desk.heads);
    let mut answer = Answer::empty(job.id, Fault::None, "");
    let origin = Origin { tls: job.tls, host: job.host, address: job.address };
    let resting = if job.fresh { None } else { taken(&desk.kept, &origin).await };
    let kept = resting.is_some();
    answer.new_connection = !kept;
    let connected = match resting {
        Some(connection) => Ok(connection),
        None => connect(desk, &origin, &mut times).await,
    };
    let end = match connected {
        Err(end) => {
            answer.new_connection = false;
            end
        }
        Ok(mut connection) => {
            answer.sent = true;
            times.active = Instant::now();
            let mut deadline = Box::pin(sleep_until(times.next(&message)));
            let sent = send(&mut connection, &job.head, &times, &message, deadline.as_mut()).await;
            let end = match sent {
                Some(end) => end,
                None => {
                    receive(desk, &mut connection, &mut message, &mut times, deadline.as_mut())
                        .await
                }
            };
            // The crawl's own retry asks again, in its time: a second request here would come without gap and lease.
            if kept && message.lines == 0 && matches!(end.fault, Fault::Reset | Fault::EmptyReply) {
                answer.kept_died = true;
                End::fault(Fault::Reset, "a kept connection was closed instead of an answer")
            } else {
                if !job.fresh && end.fault == Fault::None && end.truncated == Truncated::No {
                    if let Some(time) = message.keep(desk.keep) {
                        desk.kept.borrow_mut().put(origin, connection, Instant::now() + time);
                    }
                }
                end
            }
        }
    };
    answer.took = times.took();
    answer.waited = times.began.saturating_duration_since(job.submitted);
    answer.lasted = times.began.elapsed();
    answer.first_byte = times.first_byte;
    answer.fault = end.fault;
    answer.truncated = if message.has_head() { end.truncated } else { Truncated::No };
    answer.text = end.text;
    answer.ambiguous = message.ambiguous;
    if message.has_head() {
        answer.status = message.status;
        answer.head_bytes = message.head_bytes;
        answer.raw = message.raw;
    }
    answer
}

async fn connect(desk: &Rc<Desk>, origin: &Origin, times: &mut Times) -> Result<Connection, End> {
    {
        let mut kept = desk.kept.borrow_mut();
        while kept.len() > 0 && kept.len() + desk.busy.get() > desk.connections_max {
            kept.close_oldest();
        }
    }
    let late = |times: &Times| {
        let limit = times.limits.connect.min(times.limits.total);
        End::fault(Fault::ConnectTimeout, format!("no connection in {} s", limit.as_secs_f64()))
    };
    let socket = match origin.address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket =
        socket.map_err(|error| End::fault(Fault::Internal, format!("no socket: {error}")))?;
    let stream = match timeout_at(times.connect_at(), socket.connect(origin.address)).await {
        Err(_) => return Err(late(times)),
        Ok(Err(error)) => return Err(End::fault(connect_fault(&error), error.to_string())),
        Ok(Ok(stream)) => stream,
    };
    // A request is written at once: waiting for more of it would only cost time.
    let _ = stream.set_nodelay(true);
    let config = match origin.tls {
        Tls::None => return Ok(Connection::Plain(stream)),
        Tls::Verified => &desk.tls.verified,
        Tls::Unverified => &desk.tls.unverified,
    };
    let begun = Instant::now();
    let made = timeout_at(times.connect_at(), handshake(config, origin, stream)).await;
    times.handshake = begun.elapsed();
    match made {
        Err(_) => Err(late(times)),
        Ok(Err(text)) => Err(End::fault(Fault::Tls, text)),
        Ok(Ok(connection)) => Ok(connection),
    }
}

async fn handshake(
    config: &Arc<ClientConfig>,
    origin: &Origin,
    stream: TcpStream,
) -> Result<Connection, String> {
    let name = name_of(&origin.host).ok_or("the host is no name that a certificate can prove")?;
    let connector = TlsConnector::from(Arc::clone(config));
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Connection::Tls(Box::new(stream))),
        Err(error) => Err(words_of(&error)),
    }
}

/// Words for the failure of a handshake; rustls has none of its own for a certificate without one valid day.
fn words_of(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(CertificateError::Expired)) = inner {
        return "invalid peer certificate: certificate expired".to_owned();
    }
    error.to_string()
}

fn connect_fault(error: &std::io::Error) -> Fault {
    match error.kind() {
        ErrorKind::ConnectionRefused => Fault::ConnectRefused,
        ErrorKind::TimedOut => Fault::ConnectTimeout,
        ErrorKind::ConnectionReset => Fault::Reset,
        _ => Fault::Unreachable,
    }
}

/// Something happened on a connection, or its next limit may have passed.
enum Event {
    Moved(usize),
    Broke(std::io::Error),
    Ticked,
}

/// Sends the request; an end when its time is over. A connection that breaks meanwhile may still have an answer.
async fn send(
    connection: &mut Connection,
    head: &[u8],
    times: &Times,
    message: &Message,
    mut deadline: Pin<&mut Sleep>,
) -> Option<End> {
    let mut sent = 0;
    let mut flushed = false;
    while sent < head.len() || !flushed {
        let event = poll_fn(|cx| {
            let moved = if sent < head.len() {
                connection.poll_write(cx, &head[sent..])
            } else {
                connection.poll_flush(cx).map(|done| done.map(|()| 0))
            };
            if let Poll::Ready(moved) = moved {
                return Poll::Ready(moved.map_or_else(Event::Broke, Event::Moved));
            }
            deadline.as_mut().poll(cx).map(|()| Event::Ticked)
        })
        .await;
        match event {
            Event::Moved(0) if sent < head.len() => return None,
            Event::Moved(bytes) => {
                flushed = sent == head.len();
                sent += bytes;
            }
            Event::Broke(_) => return None,
            Event::Ticked => {
                if let Some(end) = times.passed(message, Instant::now()) {
                    return Some(end);
                }
                deadline.as_mut().reset(times.next(message));
            }
        }
    }
    None
}

/// Receives the answer to its end.
async fn receive(
    desk: &Rc<Desk>,
    connection: &mut Connection,
    message: &mut Message,
    times: &mut Times,
    mut deadline: Pin<&mut Sleep>,
) -> End {
    let mut share = Share::of(&desk.large);
    loop {
        if desk.inbox.is_full() || !share.goes_on() {
            let stopped = Instant::now();
            desk.inbox.has_room().await;
            let goes_on = share.has_room().await;
            times.pause(stopped.elapsed());
            if !goes_on {
                return End::new(Fault::None, Truncated::Length, NO_ROOM);
            }
            deadline.as_mut().reset(times.next(message));
        }
        let mut progress = Progress::More;
        let lines = message.lines;
        let had_head = message.has_head();
        let event = poll_fn(|cx| {
            let mut scratch = desk.scratch.borrow_mut();
            let mut into = ReadBuf::new(&mut scratch);
            match connection.poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) => {
                    let bytes = into.filled();
                    if !bytes.is_empty() {
                        progress = message.take(bytes);
                    }
                    return Poll::Ready(Event::Moved(bytes.len()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Event::Broke(error)),
                Poll::Pending => {}
            }
            deadline.as_mut().poll(cx).map(|()| Event::Ticked)
        })
        .await;
        match event {
            Event::Moved(0) => return closed(message),
            Event::Broke(error) => return broken(message, &error),
            Event::Moved(_) => {
                if times.first_byte.is_none() {
                    times.first_byte = Some(times.began.elapsed());
                }
                match progress {
                    Progress::More => {}
                    Progress::Done => return End::fault(Fault::None, ""),
                    Progress::Cut => return End::new(Fault::None, Truncated::Length, ""),
                    Progress::Failed(fault, text) => {
                        return End::new(fault, Truncated::Unspecified, text)
                    }
                }
                share.grow(message.surplus());
                let now = Instant::now();
                if message.lines > lines || message.has_head() {
                    times.active = now;
                }
                if message.has_head() && !had_head {
                    times.body_began = now;
                }
                if let Some(end) = times.passed(message, now) {
                    return end;
                }
            }
            Event::Ticked => {
                if let Some(end) = times.passed(message, Instant::now()) {
                    return end;
                }
                deadline.as_mut().reset(times.next(message));
            }
        }
    }
}

/// The other side closed the connection in good order.
fn closed(message: &Message) -> End {
    if message.ends_with_connection() {
        return End::fault(Fault::None, "");
    }
    if message.has_head() {
        return End::new(
            Fault::None,
            Truncated::Disconnect,
            "the connection was closed within the body",
        );
    }
    if message.lines == 0 {
        return End::fault(Fault::EmptyReply, "the connection was closed without an answer");
    }
    End::fault(Fault::Reset, "the connection was closed within the head")
}

fn broken(message: &Message, error: &std::io::Error) -> End {
    if message.has_head() {
        return End::new(Fault::None, Truncated::Disconnect, error.to_string());
    }
    End::fault(Fault::Reset, error.to_string())
}
