//! The fetch kernel: batches of requests in, batches of answers out, in threads of its own that know no Python.
//!
//! It decides nothing. The caller has chosen the address of each request, and the kernel connects to that address and to
//! nothing else: it resolves no name, follows no redirect, asks nothing twice. It gives the bytes of an answer as they
//! came, and says how the answer ended.

mod engine;
mod inbox;
mod kept;
mod large;
mod message;
mod room;
mod tls;
mod transfer;

pub use engine::{Engine, Settings};
pub use room::TypeLimits;
pub use transfer::{Answer, Fault, Job, Limits, Tls, Truncated};
