//! Where answers wait for whoever asked: bounded in bytes, and one wake for many of them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::transfer::Answer;

/// So many answers are waited for no longer.
const GATHERED_MAX: usize = 32;
/// Beside fewer open requests no other answer is likely within the wait: it would only slow down the hosts that are left.
const GATHERED_OPEN_MIN: usize = 8;

/// Whether whoever reads must be told now, or may be told a little later of more answers at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Now,
    Soon,
    Told,
}

/// Answers that were not taken yet. A pair of sockets tells of them: it can be polled on every system.
pub(crate) struct Inbox {
    answers: Mutex<VecDeque<Answer>>,
    bytes: AtomicUsize,
    bytes_max: usize,
    open: AtomicUsize,
    told: AtomicBool,
    room: Notify,
    bell: UnixStream,
    ear: UnixStream,
}

impl Inbox {
    pub(crate) fn new(bytes_max: usize) -> std::io::Result<Self> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        Ok(Self {
            answers: Mutex::default(),
            bytes: AtomicUsize::new(0),
            bytes_max,
            open: AtomicUsize::new(0),
            told: AtomicBool::new(false),
            room: Notify::new(),
            bell,
            ear,
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ear.as_raw_fd()
    }

    fn answers(&self) -> MutexGuard<'_, VecDeque<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many requests more are open.
    pub(crate) fn expect(&self, requests: usize) {
        self.open.fetch_add(requests, Ordering::SeqCst);
    }

    /// A request ends without an answer that anybody waits for.
    pub(crate) fn forget(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn put(&self, answer: Answer) -> Wake {
        let open = self.open.fetch_sub(1, Ordering::SeqCst) - 1;
        self.bytes.fetch_add(answer.bytes(), Ordering::SeqCst);
        let waiting = {
            let mut answers = self.answers();
            answers.push_back(answer);
            answers.len()
        };
        if self.told.load(Ordering::SeqCst) {
            Wake::Told
        } else if open < GATHERED_OPEN_MIN || waiting >= GATHERED_MAX || self.is_full() {
            Wake::Now
        } else if waiting == 1 {
            Wake::Soon
        } else {
            Wake::Told
        }
    }

    /// Tells whoever reads that answers are here; once is enough until they were taken.
    pub(crate) fn ring(&self) {
        if !self.told.swap(true, Ordering::SeqCst) {
            // A full socket has told already.
            let _ = (&self.bell).write(&[1]);
        }
    }

    /// Whether so many bytes wait that nothing more may be read from the sites.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > self.bytes_max
    }

    /// Waits until there is room for more bytes.
    pub(crate) async fn has_room(&self) {
        while self.is_full() {
            let freed = self.room.notified();
            if self.is_full() {
                freed.await;
            }
        }
    }

    /// The answers that are here, some `bytes_max` bytes of them and at least one; never waits.
    pub(crate) fn take(&self, bytes_max: usize) -> Vec<Answer> {
        let mut ears = [0; 64];
        while matches!((&self.ear).read(&mut ears), Ok(read) if read == ears.len()) {}
        self.told.store(false, Ordering::SeqCst);
        let mut taken = Vec::new();
        let mut bytes = 0;
        let left = {
            let mut answers = self.answers();
            while bytes < bytes_max {
                let Some(answer) = answers.pop_front() else { break };
                bytes += answer.bytes();
                taken.push(answer);
            }
            answers.len()
        };
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if left > 0 {
            self.ring();
        }
        if !self.is_full() {
            self.room.notify_waiters();
        }
        taken
    }
}
