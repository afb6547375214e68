//! HTML read in one pass: charset, tokens, and the columns of a page. Semantics are written at the twin,
//! `src/outrider/kernels/html.py`.

mod charset;
mod entities;
pub mod page;
mod query;
pub mod references;
pub mod tokens;

pub use charset::{decoded, Decoded};
