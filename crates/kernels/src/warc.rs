//! Exchanges as records of WARC, with their digests.
//!
//! Semantics are written at the twin, `src/outrider/kernels/warc.py`.

use std::io::Write;
use std::ops::Range;

/// Random bytes of the two record ids of an exchange.
pub const IDS_BYTES: usize = 32;
/// The last microsecond of the year 9999: RFC 3339 has four digits for a year.
const LAST: u64 = 253_402_300_799_999_999;
const END: &[u8] = b"\r\n\r\n";
const SHOWN_BYTES: usize = 37;

/// A SHA-1.
pub type Digest = [u8; 20];

/// One request and what came back.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    /// The URL, visible ASCII.
    pub url: &'a str,
    /// The address, in its usual spelling.
    pub address: &'a str,
    /// Microseconds since 1970.
    pub at: u64,
    /// The request as it was sent.
    pub request_head: &'a [u8],
    /// The status line and the fields, with their empty line.
    pub head: &'a [u8],
    /// All that followed.
    pub body: &'a [u8],
    /// Why the body ends early.
    pub truncated: Option<&'a str>,
    /// The lease.
    pub token: Option<u64>,
    /// The payload with its codings undone, where that is another one.
    pub content: Option<&'a [u8]>,
    /// The body without its transfer codings, where that is another one.
    pub payload: Option<&'a [u8]>,
}

/// The digests of an exchange, and where its records lie.
pub struct Packed {
    /// The digest of the payload.
    pub payload: Digest,
    /// The digest of the content.
    pub content: Digest,
    /// The record of the response.
    pub response: Range<usize>,
    /// The record of the request.
    pub request: Range<usize>,
}

/// Whether a text can stand in a field: visible ASCII, at least one.
#[must_use]
pub fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_graphic())
}

/// The records of exchanges, one behind the other in `out`. `ids` has `IDS_BYTES` for each.
pub fn warc_records(exchanges: &[Exchange<'_>], ids: &[u8], out: &mut Vec<u8>) -> Vec<Packed> {
    let ids = ids.chunks_exact(IDS_BYTES);
    exchanges.iter().zip(ids).map(|(exchange, ids)| records_of(exchange, ids, out)).collect()
}

fn records_of(exchange: &Exchange<'_>, ids: &[u8], record: &mut Vec<u8>) -> Packed {
    let begin = record.len();
    let (response_id, request_id) =
        (record_id(&ids[..IDS_BYTES / 2]), record_id(&ids[IDS_BYTES / 2..]));
    record.extend_from_slice(b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: ");
    record.extend_from_slice(&response_id);
    add_common(exchange, record);
    record.extend_from_slice(b"WARC-Block-Digest: ");
    let block_digest_at = record.len();
    record.resize(block_digest_at + SHOWN_BYTES, 0);
    record.extend_from_slice(b"\r\nWARC-Payload-Digest: ");
    let payload_digest_at = record.len();
    record.resize(payload_digest_at + SHOWN_BYTES, 0);
    if let Some(truncated) = exchange.truncated {
        record.extend_from_slice(b"\r\nWARC-Truncated: ");
        record.extend_from_slice(truncated.as_bytes());
    }
    record.extend_from_slice(
        b"\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: ",
    );
    add_number((exchange.head.len() + exchange.body.len()) as u64, record);
    record.extend_from_slice(END);
    let block_at = record.len();
    record.extend_from_slice(exchange.head);
    let body_at = record.len();
    record.extend_from_slice(exchange.body);
    let [block, payload, content] = digests([
        &record[block_at..],
        exchange.payload.unwrap_or(&record[body_at..]),
        exchange.content.unwrap_or_default(),
    ]);
    record[block_digest_at..block_digest_at + SHOWN_BYTES].copy_from_slice(&shown(&block));
    record[payload_digest_at..payload_digest_at + SHOWN_BYTES].copy_from_slice(&shown(&payload));
    record.extend_from_slice(END);
    let response = begin..record.len();

    record.extend_from_slice(b"WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: ");
    record.extend_from_slice(&request_id);
    add_common(exchange, record);
    record.extend_from_slice(b"WARC-Concurrent-To: ");
    record.extend_from_slice(&response_id);
    record.extend_from_slice(b"\r\nWARC-Block-Digest: ");
    let [block] = digests([exchange.request_head]);
    record.extend_from_slice(&shown(&block));
    record.extend_from_slice(
        b"\r\nContent-Type: application/http; msgtype=request\r\nContent-Length: ",
    );
    add_number(exchange.request_head.len() as u64, record);
    record.extend_from_slice(END);
    record.extend_from_slice(exchange.request_head);
    record.extend_from_slice(END);
    let content = if exchange.content.is_some() { content } else { payload };
    Packed { payload, content, request: response.end..record.len(), response }
}

/// The fields that both records have, with the end of the line before.
fn add_common(exchange: &Exchange<'_>, record: &mut Vec<u8>) {
    record.extend_from_slice(b"\r\nWARC-Date: ");
    add_date(exchange.at, record);
    record.extend_from_slice(b"\r\nWARC-Target-URI: ");
    record.extend_from_slice(exchange.url.as_bytes());
    record.extend_from_slice(b"\r\nWARC-IP-Address: ");
    record.extend_from_slice(exchange.address.as_bytes());
    if let Some(token) = exchange.token {
        record.extend_from_slice(b"\r\nOutrider-Token: ");
        add_number(token, record);
    }
    record.extend_from_slice(b"\r\n");
}

fn add_number(number: u64, record: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(record, "{number}");
}

/// RFC 3339 in UTC with microseconds. Days to dates as Howard Hinnant's `civil_from_days` has it.
fn add_date(at: u64, record: &mut Vec<u8>) {
    let (second, micro) = (at.min(LAST) / 1_000_000, at.min(LAST) % 1_000_000);
    let (days, second) = (second / 86_400 + 719_468, second % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153; // months from March on
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let _ = write!(
        record,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z"
    );
}

/// A UUID of version 4 (RFC 9562 section 5.4) as a URN in angle brackets.
fn record_id(random: &[u8]) -> [u8; 47] {
    let mut bits = [0; 16];
    bits.copy_from_slice(random);
    bits[6] = bits[6] & 0x0f | 0x40;
    bits[8] = bits[8] & 0x3f | 0x80;
    let mut text = *b"<urn:uuid:00000000-0000-0000-0000-000000000000>";
    let places = text[10..46].iter_mut().filter(|octet| **octet != b'-');
    let digits = bits.iter().flat_map(|octet| [octet >> 4, octet & 15]);
    for (place, digit) in places.zip(digits) {
        *place = b"0123456789abcdef"[usize::from(digit)];
    }
    text
}

/// A SHA-1 as WARC tools write it: `sha1:` and 32 characters of base 32.
#[must_use]
pub fn shown(digest: &Digest) -> [u8; SHOWN_BYTES] {
    let mut text = *b"sha1:00000000000000000000000000000000";
    for (places, octets) in text[5..].chunks_exact_mut(8).zip(digest.chunks_exact(5)) {
        let bits = octets.iter().fold(0u64, |bits, octet| bits << 8 | u64::from(*octet));
        for (at, place) in places.iter_mut().enumerate() {
            *place = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(bits >> (35 - 5 * at) & 31) as usize];
        }
    }
    text
}

/// The SHA-1 of each text. They are hashed block by block in turns: a processor computes several digests at once that
/// do not wait for each other, and two of 30 KB take two thirds of the time that they take one after the other.
#[must_use]
pub fn digests<const N: usize>(texts: [&[u8]; N]) -> [Digest; N] {
    let mut states = [[0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0]; N];
    let mut rests = texts;
    while states
        .iter_mut()
        .zip(&mut rests)
        .fold(false, |any, (state, rest)| any | hash_block(state, rest))
    {}
    let mut digests = [[0; 20]; N];
    for (((text, rest), state), digest) in texts.iter().zip(rests).zip(states).zip(&mut digests) {
        *digest = ended(state, rest, text.len());
    }
    digests
}

/// Takes one block off a text, if it has one.
#[inline(always)]
fn hash_block(state: &mut [u32; 5], rest: &mut &[u8]) -> bool {
    let Some((block, behind)) = rest.split_first_chunk::<64>() else { return false };
    sha1::block_api::compress(state, std::slice::from_ref(block));
    *rest = behind;
    true
}

/// The digest of a text of so many bytes, of which less than a block is left: FIPS 180-4 sections 5.1.1 and 6.1.2.
fn ended(mut state: [u32; 5], rest: &[u8], bytes: usize) -> Digest {
    let mut tail = [0; 128];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let size = if rest.len() < 56 { 64 } else { 128 };
    tail[size - 8..size].copy_from_slice(&(8 * bytes as u64).to_be_bytes());
    let mut tail = &tail[..size];
    while hash_block(&mut state, &mut tail) {}
    let mut digest = [0; 20];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_of(text: &[u8]) -> String {
        let [digest] = digests([text]);
        String::from_utf8(shown(&digest).to_vec()).unwrap()
    }

    #[test]
    fn published_digests_are_met() {
        // FIPS 180-4's examples, in base 32 as coreutils' base32 writes them.
        assert_eq!("sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", shown_of(b""));
        assert_eq!("sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5", shown_of(b"abc"));
        let million = vec![b'a'; 1_000_000];
        assert_eq!("sha1:GSVJOPGUYTNKJ5Q65MV5XLJHGFSTIALP", shown_of(&million));
    }

    #[test]
    fn digests_in_turns_are_those_alone() {
        let text: Vec<u8> = (0..400).map(|at| (at * 7 % 251) as u8).collect();
        for count in 0..400 {
            let all = digests([&text[..count], &text[count..], &text[..count / 3]]);
            assert_eq!(digests([&text[..count]]), [all[0]]);
            assert_eq!(digests([&text[count..]]), [all[1]]);
            assert_eq!(digests([&text[..count / 3]]), [all[2]]);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |at| {
            let mut text = Vec::new();
            add_date(at, &mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!("1970-01-01T00:00:00.000000Z", date(0));
        assert_eq!("2000-02-29T23:59:59.999999Z", date(951_868_799_999_999));
        assert_eq!("2026-01-02T03:04:05.678901Z", date(1_767_323_045_678_901));
        assert_eq!("2100-03-01T00:00:00.000001Z", date(4_107_542_400_000_001));
        assert_eq!("9999-12-31T23:59:59.999999Z", date(u64::MAX));
    }

    #[test]
    fn a_record_id_says_its_version() {
        let expected = b"<urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff>";
        assert_eq!((*expected, 47), (record_id(&[0xff; 16]), expected.len()));
    }
}
