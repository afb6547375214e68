//! The frames of the log and their checksum, CRC-32C (RFC 3720 appendix B.4). Little endian throughout:
//!
//! ```text
//! | length u32 | crc32c u32 | LSN u64 | last synced LSN u64 | epoch u32 | kind u8 | version u8 | codec u8 | payload |
//!                           '------------------------- length bytes, covered by the crc ------------------------'
//! ```
//!
//! `length` counts everything after the crc field and is at least 23, so eight zero bytes are no frame.

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 31;
/// The largest frame, header included: a length beyond it is damage, not a frame to wait for.
pub const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

const BEFORE_COVERED: usize = 8;
const COVERED_BYTES_MIN: usize = FRAME_HEADER_BYTES - BEFORE_COVERED;
const COVERED_BYTES_MAX: usize = FRAME_BYTES_MAX - BEFORE_COVERED;
/// A register of the buffer's prefix is kept for every so many bytes while frames are searched.
const PREFIX_STEP_BYTES: usize = 512;

/// What a frame says besides its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The frame's place in its log.
    pub lsn: u64,
    /// The last LSN known to be on the disk when this frame was written.
    pub synced: u64,
    /// Which opening of the log wrote it.
    pub epoch: u32,
    /// What kind of facts the payload holds.
    pub kind: u8,
    /// In which version of their format.
    pub version: u8,
    /// And how they are packed.
    pub codec: u8,
}

impl Fields {
    fn to_bytes(self) -> [u8; COVERED_BYTES_MIN] {
        let mut bytes = [0; COVERED_BYTES_MIN];
        bytes[0..8].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.synced.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[20] = self.kind;
        bytes[21] = self.version;
        bytes[22] = self.codec;
        bytes
    }

    fn read(buffer: &[u8], at: usize) -> Self {
        Self {
            lsn: u64::from_le_bytes(array_at(buffer, at)),
            synced: u64::from_le_bytes(array_at(buffer, at + 8)),
            epoch: u32::from_le_bytes(array_at(buffer, at + 16)),
            kind: buffer[at + 20],
            version: buffer[at + 21],
            codec: buffer[at + 22],
        }
    }
}

/// A whole frame found in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where in the buffer the payload begins.
    pub payload_offset: usize,
    /// How many bytes it has.
    pub payload_length: usize,
    /// The rest of the frame.
    pub fields: Fields,
}

/// Why a scan ended where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The buffer is exhausted exactly.
    End = 0,
    /// Eight zero bytes, or fewer up to the buffer's end: unused space.
    Zeros = 1,
    /// A frame runs past the buffer.
    Short = 2,
    /// An impossible length, or the crc does not hold.
    Bad = 3,
    /// As many frames as were asked for, and bytes are left.
    Limit = 4,
}

/// The CRC-32C of `bytes` when `seed` is that of what came before them.
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(seed, bytes)
}

/// Whether a payload of so many bytes fits a frame.
#[must_use]
pub fn payload_fits(bytes: usize) -> bool {
    bytes <= FRAME_BYTES_MAX - FRAME_HEADER_BYTES
}

/// Appends one frame to `out`. The payload must fit a frame (`payload_fits`).
///
/// # Panics
/// When it does not.
pub fn pack_frame(fields: Fields, payload: &[u8], out: &mut Vec<u8>) {
    assert!(payload_fits(payload.len()), "the payload exceeds the largest frame");
    let covered = fields.to_bytes();
    let crc = crc32c(crc32c(0, &covered), payload);
    let length = (covered.len() + payload.len()) as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&covered);
    out.extend_from_slice(payload);
}

/// The whole frames from `start` on (at most `limit`), where the scan ended, and why.
#[must_use]
pub fn scan_frames(buffer: &[u8], start: usize, limit: usize) -> (Vec<Frame>, usize, Reason) {
    let mut frames = Vec::new();
    let mut at = start;
    while at < buffer.len() {
        if frames.len() == limit {
            return (frames, at, Reason::Limit);
        }
        let rest = &buffer[at..];
        if rest.iter().take(BEFORE_COVERED).all(|&octet| octet == 0) {
            return (frames, at, Reason::Zeros);
        }
        if rest.len() < BEFORE_COVERED {
            return (frames, at, Reason::Short);
        }
        let (length, crc) = length_and_crc(buffer, at);
        if !(COVERED_BYTES_MIN..=COVERED_BYTES_MAX).contains(&length) {
            return (frames, at, Reason::Bad);
        }
        let Some(covered) = rest[BEFORE_COVERED..].get(..length) else {
            return (frames, at, Reason::Short);
        };
        if crc != crc32c(0, covered) {
            return (frames, at, Reason::Bad);
        }
        frames.push(Frame {
            payload_offset: at + FRAME_HEADER_BYTES,
            payload_length: length - COVERED_BYTES_MIN,
            fields: Fields::read(buffer, at + BEFORE_COVERED),
        });
        at += BEFORE_COVERED + length;
    }
    (frames, at, Reason::End)
}

/// The offset of the first whole frame at or after `start`, at any alignment.
///
/// What looks like a length costs a bounded number of steps, however much it claims to cover: the crc of a piece is
/// derived from those of two prefixes of the buffer.
#[must_use]
pub fn find_frame(buffer: &[u8], start: usize) -> Option<usize> {
    let last = buffer.len().checked_sub(FRAME_HEADER_BYTES)?;
    let mut prefixes = Prefixes::new(buffer, start);
    (start..=last).find(|&at| {
        let length = u32::from_le_bytes(array_at(buffer, at)) as usize;
        let covered = at + BEFORE_COVERED;
        (COVERED_BYTES_MIN..=COVERED_BYTES_MAX).contains(&length)
            && length <= buffer.len() - covered
            && length_and_crc(buffer, at).1 == prefixes.crc(covered, covered + length)
    })
}

fn length_and_crc(buffer: &[u8], at: usize) -> (usize, u32) {
    let length = u32::from_le_bytes(array_at(buffer, at)) as usize;
    (length, u32::from_le_bytes(array_at(buffer, at + 4)))
}

fn array_at<const N: usize>(buffer: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&buffer[at..at + N]);
    array
}

/// The crc of any piece of a buffer, from the registers at its two ends.
///
/// The register is linear: after the bytes a..b it is (register at b) xor (what was different at a, moved on by b - a zero
/// bytes). Moving on by 2^k zero bytes is a matrix of bits, kept as its 32 columns.
struct Prefixes<'a> {
    buffer: &'a [u8],
    start: usize,
    registers: Vec<u32>,
    moves: Vec<[u32; 32]>,
}

impl<'a> Prefixes<'a> {
    fn new(buffer: &'a [u8], start: usize) -> Self {
        let one_byte = std::array::from_fn(|place| advance(1 << place, &[0]));
        Self { buffer, start, registers: vec![0], moves: vec![one_byte] }
    }

    fn crc(&mut self, begin: usize, end: usize) -> u32 {
        let different = self.register(begin) ^ u32::MAX;
        self.register(end) ^ self.moved(different, end - begin) ^ u32::MAX
    }

    fn register(&mut self, at: usize) -> u32 {
        let step = (at - self.start) / PREFIX_STEP_BYTES;
        while self.registers.len() <= step {
            let known = self.registers.len() - 1;
            let first = self.start + known * PREFIX_STEP_BYTES;
            let piece = &self.buffer[first..first + PREFIX_STEP_BYTES];
            self.registers.push(advance(self.registers[known], piece));
        }
        advance(self.registers[step], &self.buffer[self.start + step * PREFIX_STEP_BYTES..at])
    }

    fn moved(&mut self, mut register: u32, zero_bytes: usize) -> u32 {
        let mut power = 0;
        while zero_bytes >> power != 0 {
            if power == self.moves.len() {
                let half = self.moves[power - 1];
                self.moves.push(half.map(|column| times(&half, column)));
            }
            if zero_bytes >> power & 1 == 1 {
                register = times(&self.moves[power], register);
            }
            power += 1;
        }
        register
    }
}

/// The bare CRC register after `bytes`: `crc32c` without the inversion of its two ends.
fn advance(register: u32, bytes: &[u8]) -> u32 {
    !crc32c(!register, bytes)
}

fn times(matrix: &[u32; 32], mut register: u32) -> u32 {
    let mut product = 0;
    while register != 0 {
        product ^= matrix[register.trailing_zeros() as usize];
        register &= register - 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields = Fields { lsn: 7, synced: 5, epoch: 3, kind: 2, version: 1, codec: 0 };

    fn two_frames() -> Vec<u8> {
        let mut log = Vec::new();
        pack_frame(FIELDS, b"first", &mut log);
        pack_frame(FIELDS, b"", &mut log);
        log
    }

    #[test]
    fn the_published_check_value_of_the_checksum_holds() {
        assert_eq!(0xE306_9283, crc32c(0, b"123456789"));
    }

    #[test]
    fn pieces_of_a_checksum_add_up() {
        assert_eq!(crc32c(0, b"123456789"), crc32c(crc32c(0, b"1234"), b"56789"));
    }

    #[test]
    fn what_was_packed_is_found_by_a_scan() {
        let log = two_frames();
        let (frames, end, reason) = scan_frames(&log, 0, usize::MAX);
        let expected = [
            Frame { payload_offset: 31, payload_length: 5, fields: FIELDS },
            Frame { payload_offset: 67, payload_length: 0, fields: FIELDS },
        ];
        assert_eq!((&expected[..], log.len(), Reason::End), (&frames[..], end, reason));
    }

    #[test]
    fn a_log_cut_anywhere_gives_only_whole_frames() {
        let log = two_frames();
        for cut in 0..log.len() {
            let (frames, end, reason) = scan_frames(&log[..cut], 0, usize::MAX);
            let whole = usize::from(cut >= 36);
            assert_eq!((whole, whole * 36), (frames.len(), end), "cut at {cut}");
            let exact = cut == 0 || cut == 36;
            assert_eq!(exact, reason == Reason::End, "cut at {cut}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let log = two_frames();
        for bit in 0..log.len() * 8 {
            let mut damaged = log.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (frames, _, reason) = scan_frames(&damaged, 0, usize::MAX);
            assert!(frames.len() < 2 && reason != Reason::End, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_is_found_at_any_alignment_and_distance() {
        for before in [0, 1, 3, 30, 511, 512, 513, 5000] {
            let mut log: Vec<u8> = (0..before).map(|place| (place * 7 % 251) as u8).collect();
            pack_frame(FIELDS, &[9; 3000], &mut log);
            assert_eq!(Some(before), find_frame(&log, 0));
            assert_eq!(None, find_frame(&log, before + 1));
            assert_eq!(None, find_frame(&log[..log.len() - 1], 0));
        }
    }

    #[test]
    fn zeros_hold_no_frame() {
        assert_eq!(None, find_frame(&[0; 4096], 0));
        assert_eq!((Vec::new(), 0, Reason::Zeros), scan_frames(&[0; 4096], 0, usize::MAX));
    }
}
