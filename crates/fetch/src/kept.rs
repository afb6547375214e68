//! Connections kept for another request to the same host at the same address: bounded in number and in time.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::transfer::Tls;

/// A connection, plain or over TLS.
pub(crate) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, into),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    /// Whether the other side has neither closed it nor sent anything that nobody asked for.
    async fn rests(&mut self) -> bool {
        let mut byte = [0; 1];
        poll_fn(|cx| {
            let mut into = ReadBuf::new(&mut byte);
            Poll::Ready(self.poll_read(cx, &mut into).is_pending())
        })
        .await
    }
}

/// Whose connection it is: hosts that share an address share no connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) tls: Tls,
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
}

struct Rest {
    connection: Connection,
    until: Instant,
    number: u64,
}

/// The connections that rest: one of each origin, the one that rests longest goes first.
#[derive(Default)]
pub(crate) struct Kept {
    by_origin: HashMap<Origin, Rest>,
    order: VecDeque<(u64, Origin)>,
    put: u64,
}

impl Kept {
    pub(crate) fn len(&self) -> usize {
        self.by_origin.len()
    }

    pub(crate) fn put(&mut self, origin: Origin, connection: Connection, until: Instant) {
        self.put += 1;
        self.order.push_back((self.put, origin.clone()));
        self.by_origin.insert(origin, Rest { connection, until, number: self.put });
        // Entries of connections that were taken are passed over; they must not pile up before that.
        if self.order.len() > 2 * self.by_origin.len() + 64 {
            let alive = &self.by_origin;
            self.order.retain(|(number, origin)| {
                alive.get(origin).is_some_and(|rest| rest.number == *number)
            });
        }
    }

    fn take(&mut self, origin: &Origin) -> Option<Rest> {
        self.by_origin.remove(origin)
    }

    /// Closes the connection that rests longest.
    pub(crate) fn close_oldest(&mut self) {
        while let Some((number, origin)) = self.order.pop_front() {
            if self.by_origin.get(&origin).is_some_and(|rest| rest.number == number) {
                self.by_origin.remove(&origin);
                return;
            }
        }
    }

    /// Closes those whose time is over.
    pub(crate) fn close_late(&mut self, now: Instant) {
        self.by_origin.retain(|_, rest| rest.until > now);
        if self.by_origin.is_empty() {
            self.order.clear();
        }
    }
}

/// A connection of this origin that may be used again, if one rests here.
pub(crate) async fn taken(kept: &std::cell::RefCell<Kept>, origin: &Origin) -> Option<Connection> {
    let mut rest = kept.borrow_mut().take(origin)?;
    (rest.until > Instant::now() && rest.connection.rests().await).then_some(rest.connection)
}
