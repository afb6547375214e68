//! The batch loops of Outrider in plain Rust: no policy, no clock, no file, no connection, no Python.
//!
//! Each kernel has a twin in plain Python (`src/outrider/kernels`) that says the same in the shortest way; both pass the
//! same contract tests (`tests/contract/test_kernels.py`).

pub mod backlog;
pub mod blocked_bloom;
pub mod caseless;
pub mod digest;
pub mod eight;
pub mod extras;
pub mod fields;
pub mod fingerprint_set;
pub mod framing;
pub mod groups;
pub mod html;
pub mod index;
pub mod key_pages;
pub mod key_requests;
pub mod leases;
pub mod pages;
pub mod planes;
pub mod ready;
pub mod robots;
pub mod rows;
pub mod same_bodies;
pub mod shapes;
pub mod simhash;
pub mod siphash;
pub mod sitemap;
pub mod suffixes;
pub mod timetable;
pub mod turns;
pub mod urls;
pub mod warc;
