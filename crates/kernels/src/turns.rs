//! One look at many hosts: their queues are offered, or the hosts are booked, or neither, as their columns say.
//!
//! Semantics are written at the twin, `src/outrider/kernels/turns.py`.

use std::cell::Cell;

use crate::backlog::{Backlog, Refusal};
use crate::ready::Ready;
use crate::rows::NONE;
use crate::timetable::Timetable;

/// Bytes of a record of a host, as `src/outrider/kernels/host_cells.py` draws it.
pub const HOST_BYTES: usize = 48;
const REST_UNTIL: usize = 16;
const FIRST_QUEUE: usize = 36;
const IN_FLIGHT: usize = 42;
const FLAGS: usize = 45;

/// What a look needs of hosts and queues, as bytes, little endian.
pub struct Columns<'a> {
    /// A record of 48 bytes per host.
    pub cells: &'a [u8],
    /// u32 per queue.
    pub crawl: &'a [u8],
}

struct Look {
    host: u32,
    queue: u32,
    until: i64,
    busy: bool,
}

fn part<const SIZE: usize>(cells: &[u8; HOST_BYTES], at: usize) -> [u8; SIZE] {
    let mut octets = [0; SIZE];
    octets.copy_from_slice(&cells[at..at + SIZE]);
    octets
}

fn cell<const SIZE: usize>(column: &[u8], row: u32, what: &str) -> Result<[u8; SIZE], Refusal> {
    let start = row as usize * SIZE;
    match column.get(start..start + SIZE).and_then(|cell| cell.try_into().ok()) {
        Some(cell) => Ok(cell),
        None => Err(Refusal::Row(format!("row {row} lies outside the column {what}"))),
    }
}

/// So many leases of these queues were opened or ended: their hosts count them. The hosts in the order of the queues; of
/// opened ones only those that have any flag.
///
/// # Errors
/// A row that no column has; then nothing is counted.
pub fn count_leases(
    queues: &[u32],
    opened: bool,
    host_of: &[u8],
    cells: &[Cell<u8>],
) -> Result<Vec<u32>, Refusal> {
    let mut hosts = Vec::with_capacity(queues.len());
    for &queue in queues {
        let host = u32::from_le_bytes(cell(host_of, queue, "hosts")?);
        if host as usize >= cells.len() / HOST_BYTES {
            return Err(Refusal::Row(format!("row {host} lies outside the column cells")));
        }
        hosts.push(host);
    }
    let step = if opened { 1 } else { u16::MAX };
    hosts.retain(|&host| {
        let cells = &cells[host as usize * HOST_BYTES..][..HOST_BYTES];
        let count = u16::from_le_bytes([cells[IN_FLIGHT].get(), cells[IN_FLIGHT + 1].get()]);
        let [low, high] = count.wrapping_add(step).to_le_bytes();
        cells[IN_FLIGHT].set(low);
        cells[IN_FLIGHT + 1].set(high);
        !opened || cells[FLAGS].get() != 0
    });
    Ok(hosts)
}

/// Settles the turns of hosts; those that are odd are given back, and then nothing was done for any.
///
/// # Errors
/// A row that no column has, an instant before 1970, or a class that no ring has.
pub fn settle(
    hosts: &mut Vec<u32>,
    now: i64,
    odd_flags: u8,
    columns: &Columns<'_>,
    backlog: &Backlog,
    ready: &mut Ready,
    timetable: &mut Timetable,
) -> Result<Vec<u32>, Refusal> {
    let mut looks = Vec::with_capacity(hosts.len());
    let mut odd = Vec::new();
    hosts.sort_unstable();
    hosts.dedup();
    for &mut host in hosts {
        let cells: [u8; HOST_BYTES] = cell(columns.cells, host, "cells")?;
        let queue = u32::from_le_bytes(part(&cells, FIRST_QUEUE));
        let [flags] = part(&cells, FLAGS);
        let until = i64::from_le_bytes(part(&cells, REST_UNTIL));
        if queue == NONE || flags & odd_flags != 0 {
            odd.push(host);
        } else if until < 0 {
            return Err(Refusal::Value(format!("rest_until: {until} lies before 1970")));
        }
        let busy = part(&cells, IN_FLIGHT) != [0, 0];
        looks.push(Look { host, queue, until, busy });
    }
    if !odd.is_empty() {
        return Ok(odd);
    }
    let queues: Vec<u32> = looks.iter().map(|look| look.queue).collect();
    let (mut out, mut due, mut later) = (Vec::new(), Vec::new(), Vec::new());
    for (look, waiting) in looks.into_iter().zip(backlog.waiting(&queues)?) {
        if waiting == 0 || look.busy {
            out.push(look);
        } else if look.until > now {
            later.push(look);
        } else {
            due.push(look.queue);
        }
    }
    let mut offers = Vec::with_capacity(due.len());
    for (&queue, class) in due.iter().zip(backlog.best(&due)?) {
        offers.push((queue, u32::from_le_bytes(cell(columns.crawl, queue, "crawl")?), class));
    }
    ready.touch(&queues);
    for look in &out {
        ready.withdraw(look.queue);
        timetable.cancel(look.host);
    }
    for (queue, crawl, class) in offers {
        ready.offer(queue, crawl, class);
    }
    timetable.touch(later.iter().map(|look| look.host));
    for look in &later {
        ready.withdraw(look.queue);
        timetable.rest(look.host, look.until);
    }
    Ok(Vec::new())
}
