//! gRPC over HTTP/2 for a server in Python. Threads of this crate accept connections, read messages and send answers;
//! they use no Python object. The caller takes the waiting events of all streams at once, and answers many at once.

mod connection;
mod protobuf;
mod server;
mod status;
mod stream;

pub use protobuf::{write_field, write_number, write_varint, Items};
pub use server::{Event, Kind, Server, Settings, Taken};
pub use status::Status;
pub use stream::Chunk;
