//! Pages with one same body in a row, by host.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::leases::Hashed;

const NO_TOKEN: u64 = u64::MAX;

/// Keys are hashes already.
type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Hashed>>;

/// Values by key: the newest `most`, and up to as many older ones.
struct Recent<V> {
    most: u64,
    young: ByHash<V>,
    old: ByHash<V>,
}

impl<V: Copy> Recent<V> {
    fn new(most: u64) -> Self {
        Self { most, young: ByHash::default(), old: ByHash::default() }
    }

    /// Changes the value of a key, `first` for a new one.
    fn change(&mut self, key: u64, first: V, change: impl FnOnce(&mut V)) {
        let old = &self.old;
        change(self.young.entry(key).or_insert_with(|| old.get(&key).copied().unwrap_or(first)));
        if self.young.len() as u64 >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

/// A page that was fetched.
pub struct Page {
    /// The hash of its host.
    pub host: u64,
    /// The hash of its body.
    pub body: u64,
    /// The token of its lease.
    pub token: u64,
    /// Whether its body is that of another URL.
    pub copy: bool,
    /// The hash of its URL up to the query, 0 where there is none.
    pub path: u64,
}

/// others: whether the host gave another body before; token: of its last page.
#[derive(Clone, Copy)]
struct Run {
    body: u64,
    token: u64,
    length: u64,
    others: bool,
}

/// Runs of pages with one same body, and the bodies of paths that are asked for with queries, `None` for several.
pub struct SameBodies {
    enough: u64,
    runs: Recent<Run>,
    asked: Recent<Option<u64>>,
}

impl SameBodies {
    /// most: so many hosts and paths are remembered in any case; enough: the length of a run that is a sign.
    #[must_use]
    pub fn new(most: u64, enough: u64) -> Self {
        Self { enough, runs: Recent::new(most), asked: Recent::new(most) }
    }

    /// Counts a page. Whether its run is so long that it is a sign.
    pub fn take(&mut self, page: &Page) -> bool {
        let varies = page.path == 0 || self.varies(page.path, page.body);
        let first = Run { body: page.body, token: NO_TOKEN, length: 0, others: false };
        let mut signs = false;
        self.runs.change(page.host, first, |run| {
            if page.body != run.body {
                *run = Run { body: page.body, length: 0, others: true, ..*run };
            } else if page.copy && varies && page.token != run.token {
                run.length += 1;
            }
            run.token = page.token;
            signs = run.others && run.length >= self.enough;
        });
        signs
    }

    /// Whether a path gave another body than this, be it now or before.
    fn varies(&mut self, path: u64, body: u64) -> bool {
        let mut several = false;
        self.asked.change(path, Some(body), |known| {
            several = *known != Some(body);
            *known = (!several).then_some(body);
        });
        several
    }
}
