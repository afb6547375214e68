//! One connection: the handshake within a time, calls, and pings to a client that says nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::server::Shared;
use crate::stream;

const HANDSHAKE: Duration = Duration::from_secs(10);
/// Most bytes that are read of a request of HTTP/1.
const REFUSED_BYTES: u64 = 1 << 20;
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);
const CONNECTION_WINDOW: u32 = 16 << 20;
const HEAD_BYTES_MAX: u32 = 32 << 10;

/// The answer to a request in HTTP/1.
const NOT_GRPC: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nconnection: close\r\ncontent-type: text/plain\r\n\
content-length: 98\r\n\r\n\
This port serves gRPC over HTTP/2. REST has an address of its own: outrider serve DIR --http ADDR\n";

/// Serves a connection to its end.
pub(crate) async fn run(shared: Arc<Shared>, socket: TcpStream, tls: Option<TlsAcceptor>) {
    let _ = socket.set_nodelay(true);
    let peer: Arc<str> =
        socket.peer_addr().map_or_else(|_| "?".into(), |address| address.ip().to_string()).into();
    match tls {
        Some(acceptor) => {
            if let Ok(Ok(secure)) = timeout(HANDSHAKE, acceptor.accept(socket)).await {
                calls(shared, secure, peer).await;
            }
        }
        None => {
            let mut first = [0; 4];
            let looked = timeout(HANDSHAKE, async {
                loop {
                    match socket.peek(&mut first).await {
                        Ok(read) if read == first.len() => return true,
                        // A shorter beginning may grow; it costs a look each few milliseconds, for some seconds.
                        Ok(read) if read > 0 => tokio::time::sleep(Duration::from_millis(5)).await,
                        _ => return false,
                    }
                }
            })
            .await;
            if !matches!(looked, Ok(true)) {
                return;
            }
            if &first == b"PRI " {
                calls(shared, socket, peer).await;
            } else {
                let _ = timeout(HANDSHAKE, refuse(socket)).await;
            }
        }
    }
}

/// Answers a client of HTTP/1. It reads what the client still sends: a close with unread bytes is a reset, and a reset
/// may overtake the answer.
async fn refuse(mut socket: TcpStream) -> std::io::Result<()> {
    socket.write_all(NOT_GRPC).await?;
    socket.shutdown().await?;
    tokio::io::copy(&mut socket.take(REFUSED_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

async fn calls<Socket>(shared: Arc<Shared>, socket: Socket, peer: Arc<str>)
where
    Socket: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = Builder::new();
    builder
        .initial_window_size(stream::STREAM_BYTES_MAX as u32)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(shared.streams_max)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_send_buffer_size(1 << 18);
    let Ok(Ok(mut connection)) = timeout(HANDSHAKE, builder.handshake::<_, Bytes>(socket)).await
    else {
        return;
    };
    let silent = pinged(&mut connection);
    let mut closing = shared.closing();
    tokio::pin!(silent);
    let mut is_closing = false;
    loop {
        tokio::select! {
            call = connection.accept() => match call {
                Some(Ok((request, respond))) => {
                    tokio::spawn(stream::run(Arc::clone(&shared), request, respond, Arc::clone(&peer)));
                }
                Some(Err(_)) | None => return,
            },
            () = &mut silent => return,
            _ = closing.changed(), if !is_closing => {
                is_closing = true;
                connection.graceful_shutdown();
            }
        }
    }
}

/// Ends when the client does not answer a ping in time.
fn pinged<Socket>(
    connection: &mut Connection<Socket, Bytes>,
) -> impl std::future::Future<Output = ()>
where
    Socket: AsyncRead + AsyncWrite + Unpin,
{
    let pings = connection.ping_pong();
    async move {
        let Some(mut pings) = pings else { return std::future::pending().await };
        loop {
            tokio::time::sleep(PING_EVERY).await;
            if !matches!(timeout(PONG_WITHIN, pings.ping(h2::Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    }
}
