//! The threads that fetch: each has a runtime of its own and the hosts that fall to it; no signal is delivered to them.
//!
//! Requests come in trains to one host: each begins when the one before has ended well, without a turn of the caller.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::mpsc as plain;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::{interval, sleep, Instant};

use crate::inbox::{Inbox, Wake};
use crate::large::Large;
use crate::message::HeadLimits;
use crate::tls;
use crate::transfer::{transfer, Answer, Desk, Fault, Job};

/// Answers gather so long before anybody is woken: a wake for each would cost as much as the fetch.
const GATHER: Duration = Duration::from_millis(1);
/// Connections whose rest is over are looked for so often.
const SWEEP: Duration = Duration::from_secs(1);

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads; a host falls to one of them.
    pub threads: usize,
    /// Certificates of the roots that are trusted, as PEM.
    pub roots_pem: Vec<u8>,
    /// Sockets open at once, kept ones included, as long as no more requests run.
    pub connections_max: usize,
    /// How long a connection is kept at most.
    pub keep: Duration,
    /// Bytes of answers that wait to be taken; with more, nothing is read from the sites.
    pub inbox_bytes_max: usize,
    /// Bytes beyond the usual limits that answers have together while they come in.
    pub large_bytes_max: usize,
    /// How long a transfer waits for others in all, where they have more.
    pub large_wait: Duration,
    /// Bytes of head, interim answers and trailers included.
    pub head_bytes_max: usize,
    /// Lines of head, likewise.
    pub head_lines_max: usize,
    /// Behind so much time no further request of a train begins.
    pub train: Duration,
    /// Statuses from 400 on behind which a train goes on.
    pub missing: Vec<u16>,
}

enum Order {
    Fetch(Vec<Vec<Job>>),
    Cancel(u64),
    LetGo(u64),
    Close,
}

/// The task of a train, and whether it is to begin no further request.
struct Running {
    task: AbortHandle,
    let_go: Rc<Cell<bool>>,
}

type Tasks = Rc<RefCell<HashMap<u64, Running>>>;

struct Thread {
    orders: mpsc::UnboundedSender<Order>,
    handle: JoinHandle<()>,
}

/// Fetches in threads of its own until it is closed or dropped.
pub struct Engine {
    inbox: Arc<Inbox>,
    large: Arc<Large>,
    threads: Vec<Thread>,
    process: u32,
}

impl Engine {
    /// Starts the threads.
    pub fn start(settings: &Settings) -> Result<Self, String> {
        let tls = tls::configs(&settings.roots_pem)?;
        let inbox = Inbox::new(settings.inbox_bytes_max).map_err(|error| error.to_string())?;
        let count = settings.threads.max(1);
        let mut engine = Self {
            inbox: Arc::new(inbox),
            large: Arc::new(Large::new(settings.large_bytes_max, settings.large_wait)),
            threads: Vec::new(),
            process: std::process::id(),
        };
        for number in 0..count {
            let (orders, taken) = mpsc::unbounded_channel();
            let (started, is_started) = plain::channel();
            let (settings, tls) = (settings.clone(), tls.clone());
            let rules = TrainRules { time: settings.train, missing: settings.missing.clone() };
            let (inbox, large) = (Arc::clone(&engine.inbox), Arc::clone(&engine.large));
            let connections_max = (settings.connections_max / count).max(1);
            // A thread takes the mask of the one that makes it: no signal may reach it before it runs.
            let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
            let handle = std::thread::Builder::new()
                .name(format!("outrider-fetch-{number}"))
                .spawn(move || {
                    let heads = HeadLimits {
                        bytes_max: settings.head_bytes_max,
                        lines_max: settings.head_lines_max,
                    };
                    let desk = Desk::new(inbox, large, tls, heads, connections_max, settings.keep);
                    run(taken, desk, rules, &started);
                });
            if let Ok(before) = before {
                let _ = before.thread_set_mask();
            }
            let handle = handle.map_err(|error| error.to_string())?;
            engine.threads.push(Thread { orders, handle });
            is_started.recv().map_err(|error| error.to_string())??;
        }
        Ok(engine)
    }

    /// Whether this process is the one that started the threads: they do not survive a fork.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.threads.is_empty()
    }

    /// A descriptor that can be read from as soon as there are answers to take.
    pub fn descriptor(&self) -> RawFd {
        self.inbox.descriptor()
    }

    /// Begins to fetch trains of requests, each to one host; each request is answered, unless its train is cancelled.
    pub fn submit(&self, trains: Vec<Vec<Job>>) {
        self.inbox.expect(trains.iter().map(Vec::len).sum());
        let mut shares: Vec<Vec<Vec<Job>>> = self.threads.iter().map(|_| Vec::new()).collect();
        for train in trains {
            let Some(job) = train.first() else { continue };
            let mut hasher = DefaultHasher::new();
            job.host.hash(&mut hasher);
            let at = (hasher.finish() % self.threads.len() as u64) as usize;
            shares[at].push(train);
        }
        for (thread, share) in self.threads.iter().zip(shares) {
            if !share.is_empty() {
                self.order(thread, Order::Fetch(share));
            }
        }
    }

    /// Breaks the train of a request off: none of it is answered, but for answers that are here already.
    pub fn cancel(&self, id: u64) {
        for thread in &self.threads {
            self.order(thread, Order::Cancel(id));
        }
    }

    /// Lets the train of a request begin no further one: those are answered as left out.
    pub fn let_go(&self, id: u64) {
        for thread in &self.threads {
            self.order(thread, Order::LetGo(id));
        }
    }

    /// Lets answers beyond the usual limits rest, or go on: whoever takes them has no room for them.
    pub fn rest(&self, resting: bool) {
        self.large.rest(resting);
    }

    fn order(&self, thread: &Thread, order: Order) {
        if let Err(mpsc::error::SendError(Order::Fetch(trains))) = thread.orders.send(order) {
            for job in trains.into_iter().flatten() {
                self.inbox.put(Answer::empty(
                    job.id,
                    Fault::Internal,
                    "the fetching thread has ended",
                ));
            }
            self.inbox.ring();
        }
    }

    /// The answers that are here, some `bytes_max` bytes of them and at least one; never waits.
    pub fn take(&self, bytes_max: usize) -> Vec<Answer> {
        self.inbox.take(bytes_max)
    }

    /// Requests without an answer.
    pub fn open(&self) -> usize {
        self.inbox.open()
    }

    /// Breaks all off, closes every connection, ends the threads. In a process that was forked off it does nothing.
    pub fn close(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        if !self.is_here() {
            std::mem::forget(threads);
            return;
        }
        for thread in &threads {
            let _ = thread.orders.send(Order::Close);
        }
        for thread in threads {
            let _ = thread.handle.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

/// Answers for a request, also where its task panics or is dropped.
struct Ticket {
    id: u64,
    desk: Rc<Desk>,
    tasks: Tasks,
    begun: bool,
    answered: bool,
}

impl Ticket {
    fn answer(&mut self, answer: Answer) {
        self.answered = true;
        match self.desk.inbox.put(answer) {
            Wake::Told => {}
            Wake::Now => self.desk.inbox.ring(),
            Wake::Soon => {
                let inbox = Arc::clone(&self.desk.inbox);
                tokio::task::spawn_local(async move {
                    sleep(GATHER).await;
                    inbox.ring();
                });
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let known = self.tasks.borrow_mut().remove(&self.id).is_some();
        if self.answered {
            return;
        }
        if known && std::thread::panicking() {
            self.desk.inbox.put(if self.begun {
                Answer::empty(self.id, Fault::Internal, "a bug in the fetch kernel")
            } else {
                Answer::left_out(self.id)
            });
            self.desk.inbox.ring();
        } else {
            self.desk.inbox.forget();
        }
    }
}

/// When a train ends before its last request.
struct TrainRules {
    time: Duration,
    missing: Vec<u16>,
}

/// Fetches one request of a train after the other, and answers each.
async fn fetch(train: Vec<(Job, Ticket)>, let_go: Rc<Cell<bool>>, rules: Rc<TrainRules>) {
    let began = Instant::now();
    let mut goes_on = true;
    for (job, mut ticket) in train {
        if !goes_on || let_go.get() {
            goes_on = false;
            ticket.answer(Answer::left_out(job.id));
            continue;
        }
        ticket.begun = true;
        #[cfg(test)]
        assert_ne!(job.host, tests::PLANTED, "a planted bug");
        let answer = transfer(&ticket.desk, job).await;
        goes_on = answer.is_well(&rules.missing) && began.elapsed() < rules.time;
        ticket.answer(answer);
    }
}

fn run(
    mut orders: mpsc::UnboundedReceiver<Order>,
    desk: Desk,
    rules: TrainRules,
    started: &plain::Sender<Result<(), String>>,
) {
    let runtime = match Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(error.to_string()));
            return;
        }
    };
    let _ = started.send(Ok(()));
    let (desk, rules) = (Rc::new(desk), Rc::new(rules));
    let tasks = Tasks::default();
    LocalSet::new().block_on(&runtime, async {
        let sweeping = Rc::clone(&desk);
        tokio::task::spawn_local(async move {
            let mut steps = interval(SWEEP);
            loop {
                steps.tick().await;
                sweeping.kept.borrow_mut().close_late(Instant::now());
            }
        });
        while let Some(order) = orders.recv().await {
            match order {
                Order::Close => return,
                Order::Cancel(id) => {
                    let running = tasks.borrow_mut().remove(&id);
                    if let Some(running) = running {
                        running.task.abort();
                    }
                }
                Order::LetGo(id) => {
                    if let Some(running) = tasks.borrow().get(&id) {
                        running.let_go.set(true);
                    }
                }
                Order::Fetch(trains) => {
                    for train in trains {
                        let ids: Vec<u64> = train.iter().map(|job| job.id).collect();
                        let let_go = Rc::new(Cell::new(false));
                        let tickets = train.into_iter().map(|job| {
                            let (id, desk, tasks) = (job.id, Rc::clone(&desk), Rc::clone(&tasks));
                            (job, Ticket { id, desk, tasks, begun: false, answered: false })
                        });
                        let task = tokio::task::spawn_local(fetch(
                            tickets.collect(),
                            Rc::clone(&let_go),
                            Rc::clone(&rules),
                        ));
                        for id in ids {
                            let running =
                                Running { task: task.abort_handle(), let_go: Rc::clone(&let_go) };
                            tasks.borrow_mut().insert(id, running);
                        }
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::transfer::{Limits, Tls};

    /// The host whose requests meet a bug.
    pub(super) const PLANTED: &str = "bug.test";
    const LONG: Duration = Duration::from_secs(60);

    fn job(id: u64, host: &str, address: SocketAddr) -> Job {
        Job {
            id,
            tls: Tls::None,
            host: host.into(),
            address,
            head: format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
            fresh: false,
            limits: Limits {
                bytes_max: 1 << 20,
                connect: LONG,
                idle: LONG,
                total: LONG,
                rate_min: 0,
                rate_after: LONG,
            },
            types: None,
            submitted: Instant::now(),
        }
    }

    /// A site that answers so many requests, a connection for each.
    fn site(answers: usize) -> Result<(SocketAddr, std::thread::JoinHandle<()>), String> {
        let site = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let address = site.local_addr().map_err(|error| error.to_string())?;
        let served = std::thread::spawn(move || {
            for mut taken in site.incoming().take(answers).flatten() {
                let mut asked = [0; 1024];
                let _ = taken.read(&mut asked);
                let _ = taken.write_all(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
                );
            }
        });
        Ok((address, served))
    }

    fn engine() -> Result<Engine, String> {
        Engine::start(&Settings {
            threads: 1,
            roots_pem: Vec::new(),
            connections_max: 8,
            keep: LONG,
            inbox_bytes_max: 1 << 20,
            large_bytes_max: 0,
            large_wait: LONG,
            head_bytes_max: 1 << 16,
            head_lines_max: 100,
            train: LONG,
            missing: vec![404],
        })
    }

    /// All answers in the order of their ids, once none is waited for.
    fn all(engine: &Engine) -> Vec<Answer> {
        while engine.open() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut answers = engine.take(usize::MAX);
        answers.sort_by_key(|answer| answer.id);
        answers
    }

    #[test]
    fn a_panic_answers_its_own_request_and_the_thread_goes_on() -> Result<(), String> {
        let (address, served) = site(4)?;
        let mut engine = engine()?;
        let mut found = Vec::new();
        for round in 0..2 {
            let first = round * 4;
            engine.submit(vec![
                vec![job(first, "a.test", address)],
                vec![job(first + 1, PLANTED, address)],
                vec![job(first + 2, "b.test", address)],
                vec![job(first + 3, PLANTED, address)],
            ]);
            found.extend(all(&engine).iter().map(|one| (one.id, one.fault, one.status)));
        }
        let bug = |id| id % 2 == 1;
        let expected: Vec<_> = (0..8)
            .map(|id| if bug(id) { (id, Fault::Internal, 0) } else { (id, Fault::None, 200) })
            .collect();
        assert_eq!(found, expected);
        engine.close();
        served.join().map_err(|_| "the site failed".to_string())
    }

    #[test]
    fn a_panic_in_a_train_gives_the_requests_behind_it_back() -> Result<(), String> {
        let (address, served) = site(2)?;
        let mut engine = engine()?;
        engine.submit(vec![
            vec![
                job(1, "a.test", address),
                job(2, PLANTED, address),
                job(3, "a.test", address),
                job(4, "a.test", address),
            ],
            vec![job(5, "b.test", address)],
        ]);
        let found: Vec<_> =
            all(&engine).iter().map(|one| (one.id, one.fault, one.status, one.left_out)).collect();
        let expected = [
            (1, Fault::None, 200, false),
            (2, Fault::Internal, 0, false),
            (3, Fault::None, 0, true),
            (4, Fault::None, 0, true),
            (5, Fault::None, 200, false),
        ];
        assert_eq!(found, expected);
        engine.close();
        served.join().map_err(|_| "the site failed".to_string())
    }
}
