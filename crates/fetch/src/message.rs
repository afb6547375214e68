//! The framing of HTTP/1.1: where the head of an answer ends and where its body does (RFC 9112), byte by byte as they come.
//!
//! The bytes stay as they were received: folded lines, odd blanks, chunk framing. Of the fields only those are read that
//! say where the message ends and whether the connection may be used again. Lines may end with LF alone (RFC 9112
//! section 2.2); NUL, a bare CR, a line without a colon and two lengths that differ make an answer `Malformed`.

use std::sync::Arc;
use std::time::Duration;

use memchr::{memchr, memchr2};

use crate::room::TypeLimits;
use crate::transfer::Fault;

/// Bytes of a chunk's extensions that are let pass; longer ones are a flood.
const EXTENSION_BYTES_MAX: usize = 4096;
/// Hex digits of a chunk's size: a sixteenth one would make sizes that no body has.
const SIZE_DIGITS_MAX: usize = 15;
/// Decimal digits of a length; a longer number bounds nothing, and the connection's end does.
const LENGTH_DIGITS_MAX: usize = 18;

/// How much head one answer may have, interim answers and trailers included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) bytes_max: usize,
    pub(crate) lines_max: usize,
}

/// The state of a message after the bytes that have come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The message goes on.
    More,
    /// The message is whole; bytes behind it were dropped.
    Done,
    /// The body is longer than its room, and was cut.
    Cut,
    /// The answer is none, or breaks its framing.
    Failed(Fault, &'static str),
}

#[derive(Clone, Copy, Debug)]
enum Chunk {
    Size,
    Data { end: usize },
    Ending,
    Trailer,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Head,
    Length { end: usize },
    Chunked(Chunk),
    UntilClose,
    Whole,
}

/// One answer in the making: its bytes so far, and what they say of its end.
#[derive(Debug)]
pub(crate) struct Message {
    /// The final answer as received, head first; interim answers are dropped.
    pub(crate) raw: Vec<u8>,
    /// Bytes of the head with its empty line; 0 until it is whole.
    pub(crate) head_bytes: usize,
    /// The status of the final answer; 0 until its head is whole.
    pub(crate) status: u16,
    /// Lines of head that have come, of interim answers and trailers too.
    pub(crate) lines: usize,
    /// Whether two readers may see different ends of the message: RFC 9112 section 6.3, points 3 to 5.
    pub(crate) ambiguous: bool,
    bytes_max: usize,
    types: Option<Arc<TypeLimits>>,
    limits: HeadLimits,
    lines_bytes: usize,
    /// Where the usual limit ends the message; nowhere until the head is whole.
    usual_end: usize,
    /// Where the limit that holds does: the one of its type, or the usual one.
    room_end: usize,
    /// First byte of the line, chunk or trailer that is being read.
    at: usize,
    /// First byte that was not searched for the end of its line.
    searched: usize,
    phase: Phase,
    keeps: bool,
    keep_seconds: Option<u64>,
    behind: bool,
}

/// The fields that decide about the message's end.
#[derive(Default)]
struct Framing {
    lengths: Vec<Vec<u8>>,
    codings: Vec<Vec<u8>>,
    connection: Vec<u8>,
    keep_alive: Vec<u8>,
    content_type: Option<Vec<u8>>,
}

impl Message {
    /// An answer of which at most `bytes_max` bytes are kept, head and body together, unless its type has a limit.
    pub(crate) fn new(
        bytes_max: usize,
        types: Option<Arc<TypeLimits>>,
        limits: HeadLimits,
    ) -> Self {
        Self {
            raw: Vec::new(),
            head_bytes: 0,
            status: 0,
            lines: 0,
            ambiguous: false,
            bytes_max,
            types,
            limits,
            lines_bytes: 0,
            usual_end: usize::MAX,
            room_end: usize::MAX,
            at: 0,
            searched: 0,
            phase: Phase::Head,
            keeps: false,
            keep_seconds: None,
            behind: false,
        }
    }

    /// Whether the final head is whole.
    pub(crate) fn has_head(&self) -> bool {
        self.head_bytes > 0
    }

    /// Bytes of the body as they came.
    pub(crate) fn body_bytes(&self) -> usize {
        self.raw.len() - self.head_bytes
    }

    /// Bytes beyond the usual limit.
    pub(crate) fn surplus(&self) -> usize {
        self.raw.len().saturating_sub(self.usual_end)
    }

    /// Whether the other side ends the message by closing the connection.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self.phase, Phase::UntilClose)
    }

    /// How long the connection may be kept for another request, at most `seconds_max`; None when it must be closed.
    pub(crate) fn keep(&self, seconds_max: Duration) -> Option<Duration> {
        if !matches!(self.phase, Phase::Whole) || !self.keeps || self.ambiguous || self.behind {
            return None;
        }
        // A server closes when its time is over; half a second earlier nothing can cross its closing.
        let told = self
            .keep_seconds
            .map(|seconds| Duration::from_secs(seconds).saturating_sub(Duration::from_millis(500)));
        Some(told.map_or(seconds_max, |told| told.min(seconds_max))).filter(|time| !time.is_zero())
    }

    /// Takes bytes as they come and says how far the message is.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Progress {
        if self.raw.capacity() - self.raw.len() < bytes.len() {
            if let Phase::Length { end } = self.phase {
                // Room for what was promised, as far as it is a usual page: a promise costs its sender nothing.
                let wanted = end.min(self.room_end).min(256 << 10);
                self.raw.reserve(wanted.saturating_sub(self.raw.len()).max(bytes.len()));
            }
        }
        self.raw.extend_from_slice(bytes);
        while let Phase::Head = self.phase {
            match self.read_head_line() {
                Ok(true) => {}
                Ok(false) => return Progress::More,
                Err((fault, text)) => return Progress::Failed(fault, text),
            }
        }
        self.read_body()
    }

    /// Reads one line of head; false when it has not wholly come.
    fn read_head_line(&mut self) -> Result<bool, (Fault, &'static str)> {
        let Some(end) = memchr(b'\n', &self.raw[self.searched..]).map(|at| self.searched + at + 1)
        else {
            let first = self.at == 0;
            self.searched = self.raw.len();
            if self.lines_bytes + self.raw.len() - self.at > self.limits.bytes_max {
                return Err(TOO_MUCH_HEAD);
            }
            if first && !may_be_status_line(&self.raw) {
                return Err(NO_STATUS_LINE);
            }
            return Ok(false);
        };
        self.count_line(end)?;
        let line = trimmed_end(&self.raw[self.at..end]);
        if memchr2(0, b'\r', line).is_some() {
            return Err(CONTROL);
        }
        if self.at == 0 {
            self.status = status_of(line).ok_or(NO_STATUS_LINE)?;
        } else if line.is_empty() {
            self.at = end;
            self.searched = end;
            self.end_head(end)?;
            return Ok(true);
        } else if line[0] != b' ' && line[0] != b'\t' && memchr(b':', line).is_none() {
            return Err((Fault::Malformed, "a line of the head has no colon"));
        }
        self.at = end;
        self.searched = end;
        Ok(true)
    }

    fn count_line(&mut self, end: usize) -> Result<(), (Fault, &'static str)> {
        self.lines += 1;
        self.lines_bytes += end - self.at;
        if self.lines > self.limits.lines_max || self.lines_bytes > self.limits.bytes_max {
            return Err(TOO_MUCH_HEAD);
        }
        Ok(())
    }

    /// Decides, at the empty line, what follows: another head, or a body and where it ends.
    fn end_head(&mut self, end: usize) -> Result<(), (Fault, &'static str)> {
        if self.status < 100 || self.status == 101 {
            return Err((Fault::Malformed, "the answer has a status that was not asked for"));
        }
        if self.status < 200 {
            self.raw.drain(..end);
            self.status = 0;
            self.at = 0;
            self.searched = 0;
            return Ok(());
        }
        let framing = framing_of(&self.raw[..end], self.types.is_some());
        let version = self.raw[7];
        let length = length_of(&framing.lengths)?;
        let codings: Vec<&[u8]> = framing
            .codings
            .iter()
            .flat_map(|field| field.split(|&byte| byte == b','))
            .map(|name| name.trim_ascii())
            .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
            .collect();
        self.ambiguous = framing.lengths.len() > 1
            || framing.codings.len() > 1
            || (!framing.lengths.is_empty() && !framing.codings.is_empty())
            || framing.codings.iter().chain(&framing.lengths).any(|field| field.contains(&b','));
        self.keeps = if version == b'0' {
            has_word(&framing.connection, b"keep-alive")
        } else {
            !has_word(&framing.connection, b"close")
        };
        self.keep_seconds = keep_seconds_of(&framing.keep_alive);
        self.phase = if self.status == 204 || self.status == 304 {
            Phase::Length { end }
        } else if codings.iter().any(|name| name.eq_ignore_ascii_case(b"chunked")) {
            // Also where it is not the last of them, as browsers and libcurl read it; such a list is ambiguous.
            Phase::Chunked(Chunk::Size)
        } else if !codings.is_empty() {
            Phase::UntilClose
        } else {
            match length {
                Length::Of(bytes) => Phase::Length { end: end.saturating_add(bytes) },
                Length::Unknown => Phase::UntilClose,
            }
        };
        self.head_bytes = end;
        self.usual_end = end.max(self.bytes_max);
        let own = self
            .types
            .as_ref()
            .and_then(|types| types.of(framing.content_type.as_deref().unwrap_or_default()));
        self.room_end = own.map_or(self.usual_end, |most| end.saturating_add(most));
        Ok(())
    }

    fn read_body(&mut self) -> Progress {
        let room_end = self.room_end;
        let found = match self.phase {
            Phase::Head | Phase::UntilClose => Progress::More,
            Phase::Whole => Progress::Done,
            Phase::Length { end } if self.raw.len() >= end => self.end_body(end, room_end),
            Phase::Length { .. } => Progress::More,
            Phase::Chunked(_) => self.read_chunks(room_end),
        };
        if found == Progress::More && self.raw.len() > room_end {
            self.raw.truncate(room_end);
            return Progress::Cut;
        }
        found
    }

    /// The message ends here, unless that lies beyond its room.
    fn end_body(&mut self, end: usize, room_end: usize) -> Progress {
        if end > room_end {
            return Progress::More;
        }
        self.behind = self.raw.len() > end;
        self.raw.truncate(end);
        self.phase = Phase::Whole;
        Progress::Done
    }

    fn read_chunks(&mut self, room_end: usize) -> Progress {
        loop {
            let Phase::Chunked(chunk) = self.phase else { return Progress::More };
            let next = match chunk {
                Chunk::Data { end } => {
                    if self.raw.len() < end {
                        return Progress::More;
                    }
                    self.at = end;
                    Ok(Some(Chunk::Ending))
                }
                Chunk::Ending => self.end_chunk(),
                Chunk::Size => self.read_size(),
                Chunk::Trailer => match self.read_trailer() {
                    Ok(Some(end)) => return self.end_body(end, room_end),
                    Ok(None) => return Progress::More,
                    Err(failure) => Err(failure),
                },
            };
            match next {
                Ok(Some(next)) => self.phase = Phase::Chunked(next),
                Ok(None) => return Progress::More,
                Err(_) if self.at > room_end => return Progress::More,
                Err((fault, text)) => return Progress::Failed(fault, text),
            }
        }
    }

    /// The end of line behind a chunk's data.
    fn end_chunk(&mut self) -> Result<Option<Chunk>, (Fault, &'static str)> {
        match self.raw[self.at..] {
            [] | [b'\r'] => Ok(None),
            [b'\n', ..] => {
                self.at += 1;
                Ok(Some(Chunk::Size))
            }
            [b'\r', b'\n', ..] => {
                self.at += 2;
                Ok(Some(Chunk::Size))
            }
            _ => Err(NO_CHUNK),
        }
    }

    /// A chunk's first line: its size and extensions.
    fn read_size(&mut self) -> Result<Option<Chunk>, (Fault, &'static str)> {
        let rest = &self.raw[self.at..];
        let line_max = SIZE_DIGITS_MAX + EXTENSION_BYTES_MAX;
        let digits = rest
            .iter()
            .take(SIZE_DIGITS_MAX + 1)
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if digits > SIZE_DIGITS_MAX || (digits == 0 && !rest.is_empty()) {
            return Err(NO_CHUNK);
        }
        let Some(newline) = memchr(b'\n', &rest[..rest.len().min(line_max)]) else {
            return if rest.len() >= line_max { Err(NO_CHUNK) } else { Ok(None) };
        };
        let blanks =
            rest[digits..newline].iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
        match rest[digits + blanks..newline] {
            [] | [b'\r'] | [b';', ..] => {}
            _ => return Err(NO_CHUNK),
        }
        let size = rest[..digits].iter().fold(0_usize, |size, &digit| {
            size << 4 | char::from(digit).to_digit(16).unwrap_or(0) as usize
        });
        self.at += newline + 1;
        if size > 0 {
            return Ok(Some(Chunk::Data { end: self.at.saturating_add(size) }));
        }
        self.searched = self.at;
        Ok(Some(Chunk::Trailer))
    }

    /// A line behind the last chunk; where the message ends once it is the empty one.
    fn read_trailer(&mut self) -> Result<Option<usize>, (Fault, &'static str)> {
        loop {
            let Some(end) =
                memchr(b'\n', &self.raw[self.searched..]).map(|at| self.searched + at + 1)
            else {
                self.searched = self.raw.len();
                if self.lines_bytes + self.raw.len() - self.at > self.limits.bytes_max {
                    return Err(TOO_MUCH_HEAD);
                }
                return Ok(None);
            };
            self.count_line(end)?;
            let line = trimmed_end(&self.raw[self.at..end]);
            if memchr2(0, b'\r', line).is_some() {
                return Err(CONTROL);
            }
            let empty = line.is_empty();
            self.at = end;
            self.searched = end;
            if empty {
                return Ok(Some(end));
            }
        }
    }
}

const NO_STATUS_LINE: (Fault, &str) =
    (Fault::Malformed, "the answer has no status line of HTTP/1.x");
const CONTROL: (Fault, &str) = (Fault::Malformed, "a NUL or a bare CR stands in the head");
const NO_CHUNK: (Fault, &str) = (Fault::Malformed, "a chunk that is none");
const TOO_MUCH_HEAD: (Fault, &str) =
    (Fault::TooManyHeaders, "more lines or bytes of head than the limits");

/// A line without its end.
fn trimmed_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether a status line may begin like this.
fn may_be_status_line(start: &[u8]) -> bool {
    let shown = b"HTTP/1.";
    let common = start.len().min(shown.len());
    start[..common] == shown[..common]
}

/// The status of `HTTP/1.0 200` or `HTTP/1.1 200`, with or without words behind it.
fn status_of(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let &[b'0' | b'1', b' ' | b'\t', first, second, third, ..] = rest else {
        return None;
    };
    [first, second, third].iter().try_fold(0_u16, |status, digit| {
        digit.is_ascii_digit().then(|| status * 10 + u16::from(digit - b'0'))
    })
}

/// The fields of a head that frame its message, folded lines joined, and the type of its content if it is `typed`.
fn framing_of(head: &[u8], typed: bool) -> Framing {
    let mut framing = Framing::default();
    let mut last: Option<&mut Vec<u8>> = None;
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.first() {
            None => continue,
            Some(b' ' | b'\t') => {
                if let Some(value) = last.as_mut() {
                    value.push(b' ');
                    value.extend_from_slice(line.trim_ascii());
                }
                continue;
            }
            Some(_) => {}
        }
        last = None;
        let Some(colon) = memchr(b':', line) else { continue };
        let name = line[..colon].trim_ascii_end();
        let value = line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            framing.lengths.push(value.to_vec());
            last = framing.lengths.last_mut();
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            framing.codings.push(value.to_vec());
            last = framing.codings.last_mut();
        } else if name.eq_ignore_ascii_case(b"connection") {
            framing.connection.push(b',');
            framing.connection.extend_from_slice(value);
            last = Some(&mut framing.connection);
        } else if name.eq_ignore_ascii_case(b"keep-alive") {
            framing.keep_alive.push(b',');
            framing.keep_alive.extend_from_slice(value);
            last = Some(&mut framing.keep_alive);
        } else if typed
            && framing.content_type.is_none()
            && name.eq_ignore_ascii_case(b"content-type")
        {
            last = Some(framing.content_type.insert(value.to_vec()));
        }
    }
    framing
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Of(usize),
    Unknown,
}

/// The one length that all fields of this name tell; a list of the same number is that number.
fn length_of(fields: &[Vec<u8>]) -> Result<Length, (Fault, &'static str)> {
    let mut found: Option<&[u8]> = None;
    for number in fields.iter().flat_map(|field| field.split(|&byte| byte == b',')) {
        let number = number.trim_ascii();
        if number.is_empty() || !number.iter().all(u8::is_ascii_digit) {
            return Err((Fault::Malformed, "a Content-Length is no number"));
        }
        let zeros = number.iter().take_while(|&&digit| digit == b'0').count();
        let digits = &number[zeros..];
        if found.is_some_and(|found| found != digits) {
            return Err((Fault::Malformed, "two lengths of the content differ"));
        }
        found = Some(digits);
    }
    Ok(match found {
        Some(digits) if digits.len() <= LENGTH_DIGITS_MAX => Length::Of(
            digits.iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0')),
        ),
        _ => Length::Unknown,
    })
}

fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(word))
}

/// The seconds in `Keep-Alive: timeout=5, max=100`.
fn keep_seconds_of(list: &[u8]) -> Option<u64> {
    list.split(|&byte| byte == b',').find_map(|parameter| {
        let (name, value) = parameter.split_at(memchr(b'=', parameter)?);
        if !name.trim_ascii().eq_ignore_ascii_case(b"timeout") {
            return None;
        }
        std::str::from_utf8(value[1..].trim_ascii()).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes_max: 1 << 18, lines_max: 1000 };

    fn read(bytes: &[u8], step: usize, bytes_max: usize) -> (Progress, Message) {
        let mut message = Message::new(bytes_max, None, LIMITS);
        let mut progress = Progress::More;
        for piece in bytes.chunks(step) {
            progress = message.take(piece);
            if progress != Progress::More {
                break;
            }
        }
        (progress, message)
    }

    #[test]
    fn every_cut_of_the_bytes_gives_the_same_message() {
        let answers: [&[u8]; 6] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n01\r\n!\r\n0\r\nT: t\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokzz\r\n",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
        ];
        for answer in answers {
            let (whole, expected) = read(answer, answer.len(), 1 << 20);
            for step in 1..answer.len() {
                let (progress, message) = read(answer, step, 1 << 20);
                assert_eq!(whole, progress, "{step}");
                if whole == Progress::Done {
                    assert_eq!((&expected.raw, expected.status), (&message.raw, message.status));
                }
            }
        }
    }

    #[test]
    fn a_body_is_cut_at_its_room() {
        let (progress, message) =
            read(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789", 7, 40);
        assert_eq!((Progress::Cut, 40), (progress, message.raw.len()));
    }

    #[test]
    fn what_follows_a_message_is_dropped_and_ends_its_connection() {
        let keep = Duration::from_secs(15);
        let (_, clean) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 9, 99);
        let (_, more) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200", 99, 99);
        assert_eq!((Some(keep), None), (clean.keep(keep), more.keep(keep)));
        assert_eq!(clean.raw, more.raw);
    }

    #[test]
    fn a_server_tells_how_long_it_keeps_a_connection() {
        let keep = Duration::from_secs(15);
        let told = |field: &str| {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{field}\r\n\r\n");
            read(answer.as_bytes(), 999, 999).1.keep(keep)
        };
        assert_eq!(Some(Duration::from_millis(4500)), told("Keep-Alive: max=9, timeout=5"));
        assert_eq!(Some(keep), told("Keep-Alive: timeout=600"));
        assert_eq!(None, told("Keep-Alive: timeout=0"));
        assert_eq!(None, told("Connection: Upgrade, CLOSE"));
    }
}
