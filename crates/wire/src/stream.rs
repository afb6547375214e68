//! One call: its messages go to the inbox, its answers to the client.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::sync::Notify;

use crate::server::{Event, Shared, Unfinished};
use crate::status::{
    encoded, timeout, Status, DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED,
};

/// A call whose unanswered messages, or unsent answers, have so many bytes reads no further.
pub(crate) const STREAM_BYTES_MAX: usize = 1 << 20;
/// Below so many unsent bytes the caller hears that there is room.
const ROOM_BYTES: usize = 1 << 18;

/// Some messages that are sent together.
pub struct Chunk {
    octets: BytesMut,
    messages: u64,
}

impl Chunk {
    /// Frames these messages.
    #[must_use]
    pub fn of<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut chunk = Self { octets: BytesMut::new(), messages: 0 };
        for message in messages {
            chunk.octets.extend_from_slice(&[0]);
            chunk.octets.extend_from_slice(&(message.len() as u32).to_be_bytes());
            chunk.octets.extend_from_slice(message);
            chunk.messages += 1;
        }
        chunk
    }
}

#[derive(Default)]
struct Out {
    chunks: VecDeque<Chunk>,
    end: Option<Status>,
}

/// The part of a call that the caller's thread and the task share.
pub(crate) struct Stream {
    pub(crate) id: u64,
    out: Mutex<Out>,
    told: Notify,
    room: Notify,
    unsent: AtomicUsize,
    unanswered: AtomicUsize,
    sent: AtomicU64,
    waits: AtomicBool,
}

impl Stream {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            out: Mutex::default(),
            told: Notify::new(),
            room: Notify::new(),
            unsent: AtomicUsize::new(0),
            unanswered: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            waits: AtomicBool::new(false),
        }
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a chunk. Returns whether there is room for more; if not, an event follows when there is.
    pub(crate) fn send(&self, chunk: Chunk) -> bool {
        let size = chunk.octets.len();
        self.out().chunks.push_back(chunk);
        let unsent = self.unsent.fetch_add(size, Ordering::SeqCst) + size;
        if unsent >= ROOM_BYTES {
            self.waits.store(true, Ordering::SeqCst);
        }
        self.told.notify_one();
        unsent < ROOM_BYTES
    }

    pub(crate) fn finish(&self, status: Status) {
        self.out().end.get_or_insert(status);
        self.told.notify_one();
    }

    /// These bytes of messages were answered: so many more may be read.
    pub(crate) fn answered(&self, bytes: usize) {
        self.unanswered.fetch_sub(bytes, Ordering::SeqCst);
        self.room.notify_one();
    }

    fn is_full(&self) -> bool {
        self.unanswered.load(Ordering::SeqCst) >= STREAM_BYTES_MAX
            || self.unsent.load(Ordering::SeqCst) >= STREAM_BYTES_MAX
    }
}

enum End {
    Finished,
    Gone,
    Failed(Status),
}

fn trailers(status: &Status) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert("grpc-status", HeaderValue::from(status.code));
    for (name, value) in [
        ("grpc-message", encoded(&status.message)),
        ("outrider-problem-bin", status.problem.clone()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            if !value.is_empty() {
                map.insert(name, value);
            }
        }
    }
    map
}

/// Headers that only proxies add.
const OF_PROXIES: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"];

/// Answers a call at once with a status, without a message.
fn refuse(mut respond: SendResponse<Bytes>, code: u32, message: &str) {
    let mut response = Response::new(());
    *response.headers_mut() = trailers(&Status::of(code, message));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    // A client that is gone needs no answer.
    let _ = respond.send_response(response, true);
}

/// Runs one call from its head to its end.
pub(crate) async fn run(
    shared: Arc<Shared>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    peer: Arc<str>,
) {
    let (head, mut body) = request.into_parts();
    let of = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if head.method != http::Method::POST
        || !of("content-type").is_some_and(|value| value.starts_with("application/grpc"))
    {
        let mut response = Response::new(());
        *response.status_mut() = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let _ = respond.send_response(response, true);
        return;
    }
    let Some(method) = shared.method(head.uri.path()) else {
        let path = head.uri.path();
        refuse(respond, UNIMPLEMENTED, &format!("this server has no call {path}"));
        return;
    };
    if of("grpc-encoding").is_some_and(|value| value != "identity") {
        refuse(respond, UNIMPLEMENTED, "compressed messages are not accepted; send identity");
        return;
    }
    let ends = match of("grpc-timeout").map(timeout) {
        None => None,
        Some(Some(micros)) => Some(Duration::from_micros(micros)),
        Some(None) => {
            refuse(respond, INTERNAL, "grpc-timeout is not a duration");
            return;
        }
    };
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Ok(mut send) = respond.send_response(response, false) else { return };
    let stream = Arc::new(Stream::new(shared.next_id()));
    let authorization = of("authorization").map(str::to_owned);
    // The address of a proxy says nothing about the client.
    let peer = if OF_PROXIES.iter().any(|name| head.headers.contains_key(*name)) {
        "".into()
    } else {
        peer
    };
    shared.open(&stream, Event::Opened { stream: stream.id, method, authorization, peer });
    let deadline = async {
        match ends {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let end = tokio::select! {
        end = read(&shared, &stream, &mut body, method) => end,
        end = write(&shared, &stream, &mut send) => end,
        // A reset would reach a client whose clock is a little late as a call that was cancelled.
        () = deadline => End::Failed(Status::of(DEADLINE_EXCEEDED, "the call is past its deadline")),
    };
    shared.forget(stream.id);
    match end {
        End::Finished => return,
        End::Gone => send.send_reset(Reason::CANCEL),
        End::Failed(status) => {
            let _ = send.send_trailers(trailers(&status));
        }
    }
    shared.push(Event::Gone { stream: stream.id, sent: stream.sent.load(Ordering::SeqCst) });
}

/// Reads messages until the client has sent all; then it waits for ever. Returns if the call cannot continue.
async fn read(
    shared: &Arc<Shared>,
    stream: &Arc<Stream>,
    body: &mut RecvStream,
    method: usize,
) -> End {
    let (kind, message_bytes_max) = (shared.kind(method), shared.message_bytes_max(method));
    let mut buffer = BytesMut::new();
    let mut unfinished = Unfinished::of(shared);
    loop {
        shared.has_room().await;
        while stream.is_full() {
            let freed = stream.room.notified();
            if stream.is_full() {
                freed.await;
            }
        }
        let octets = match body.data().await {
            Some(Ok(octets)) => octets,
            Some(Err(_)) => return End::Gone,
            None => break,
        };
        if body.flow_control().release_capacity(octets.len()).is_err() {
            return End::Gone;
        }
        buffer.extend_from_slice(&octets);
        while buffer.len() >= 5 {
            let size = u32::from_be_bytes([buffer[1], buffer[2], buffer[3], buffer[4]]) as usize;
            if buffer[0] != 0 {
                let text = "compressed messages are not accepted";
                return End::Failed(Status::of(UNIMPLEMENTED, text));
            }
            if size > message_bytes_max {
                let text = format!(
                    "a message of {size} bytes is larger than {message_bytes_max}; send smaller ones"
                );
                return End::Failed(Status::of(RESOURCE_EXHAUSTED, text));
            }
            if buffer.len() < size + 5 {
                break;
            }
            buffer.advance(5);
            let message = buffer.split_to(size).freeze();
            stream.unanswered.fetch_add(size + 5, Ordering::SeqCst);
            shared.push(Event::Message { stream: stream.id, kind, message });
        }
        if !unfinished.set(buffer.len()) {
            let text = "unfinished messages fill the memory of this server; send it again later";
            return End::Failed(Status::of(RESOURCE_EXHAUSTED, text));
        }
    }
    if !buffer.is_empty() {
        return End::Failed(Status::of(INTERNAL, "the last message is not complete"));
    }
    shared.push(Event::Ended { stream: stream.id });
    std::future::pending().await
}

/// Sends answers until the call is finished.
async fn write(shared: &Arc<Shared>, stream: &Arc<Stream>, send: &mut SendStream<Bytes>) -> End {
    loop {
        let (chunk, end) = {
            let mut out = stream.out();
            let chunk = out.chunks.pop_front();
            let end = if chunk.is_none() { out.end.take() } else { None };
            (chunk, end)
        };
        if let Some(status) = end {
            let sent = send.send_trailers(trailers(&status));
            return if sent.is_ok() { End::Finished } else { End::Gone };
        }
        let Some(Chunk { octets, messages }) = chunk else {
            tokio::select! {
                () = stream.told.notified() => continue,
                _ = poll_fn(|context| send.poll_reset(context)) => return End::Gone,
            }
        };
        let size = octets.len();
        let mut left = octets.freeze();
        while !left.is_empty() {
            send.reserve_capacity(left.len());
            match poll_fn(|context| send.poll_capacity(context)).await {
                Some(Ok(room)) => {
                    let some = left.split_to(room.min(left.len()));
                    if send.send_data(some, false).is_err() {
                        return End::Gone;
                    }
                }
                Some(Err(_)) | None => return End::Gone,
            }
        }
        stream.sent.fetch_add(messages, Ordering::SeqCst);
        let unsent = stream.unsent.fetch_sub(size, Ordering::SeqCst) - size;
        if unsent < ROOM_BYTES {
            stream.room.notify_one();
            if stream.waits.swap(false, Ordering::SeqCst) {
                shared.push(Event::Room { stream: stream.id });
            }
        }
    }
}
