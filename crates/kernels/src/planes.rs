//! Heads of cards byte by byte, as a compressor likes them: all first bytes, all second bytes …

const HEAD_BYTES: usize = 72;
const PLANES: usize = HEAD_BYTES + 1;
const MASK_BYTES: usize = PLANES.div_ceil(8);
const COUNTS_AT: usize = MASK_BYTES + PLANES;
const FINGERPRINT: usize = 0;
/// Queue, due, priority.
const LISTED: [usize; 3] = [8, 24, 32];
const LISTS_AT: usize = COUNTS_AT + 2 * LISTED.len();
const LOW: u64 = (1 << 56) - 1;
/// The most rows that are packed together.
pub const ROWS_MAX: usize = 65_536;

/// Items of one width that lie `stride` bytes apart: first the first bytes of all, then the second bytes …
pub fn shuffle(octets: &[u8], rows: usize, stride: usize, width: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + rows * width, 0);
    let planes = &mut out[begin..];
    // Squares of eight rows by eight bytes, and then what is left of rows and of bytes.
    let (even_rows, even_width) = (rows & !7, width & !7);
    for row in (0..even_rows).step_by(8) {
        for at in (0..even_width).step_by(8) {
            let mut square = [0; 8];
            for (line, number) in square.iter_mut().zip(row..) {
                *line = cell(octets, number * stride + at);
            }
            transpose(&mut square);
            for (line, number) in square.iter().zip(at..) {
                set_cell(planes, number * rows + row, *line);
            }
        }
    }
    for at in 0..width {
        for row in (if at < even_width { even_rows } else { 0 })..rows {
            planes[at * rows + row] = octets[row * stride + at];
        }
    }
}

/// Byte i of line k becomes byte k of line i. (Warren 2012, "Hacker's Delight", section 7-3, by bytes.)
fn transpose(square: &mut [u64; 8]) {
    const LOWER: [(usize, u64); 3] =
        [(1, 0x00ff_00ff_00ff_00ff), (2, 0x0000_ffff_0000_ffff), (4, 0x0000_0000_ffff_ffff)];
    for (step, lower) in LOWER {
        for line in (0..8).filter(|line| line & step == 0) {
            let changed = (square[line] >> (8 * step) ^ square[line + step]) & lower;
            square[line + step] ^= changed;
            square[line] ^= changed << (8 * step);
        }
    }
}

fn cell(head: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn set_cell(head: &mut [u8], at: usize, value: u64) {
    head[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The rows in planes; None unless there are 1 to `ROWS_MAX` flags and a head of 72 bytes for each.
#[must_use]
pub fn pack(heads: &[u8], whole: &[u8]) -> Option<Vec<u8>> {
    let rows = whole.len();
    if rows == 0 || rows > ROWS_MAX || heads.len() != rows * HEAD_BYTES {
        return None;
    }
    let mut cells = heads.to_vec();
    let mut before = 0;
    for head in cells.chunks_exact_mut(HEAD_BYTES) {
        let print = cell(head, FINGERPRINT);
        set_cell(head, FINGERPRINT, (print.wrapping_sub(before) & LOW) | (print & !LOW));
        before = print;
    }
    let mut packed = vec![0; LISTS_AT];
    for (number, at) in LISTED.into_iter().enumerate() {
        let values = distinct(&cells, at, rows / 4);
        if values.len() < 2 {
            continue;
        }
        for head in cells.chunks_exact_mut(HEAD_BYTES) {
            let place = values.partition_point(|&value| value < cell(head, at));
            set_cell(head, at, place as u64);
        }
        let count = (values.len() as u16).to_le_bytes();
        packed[COUNTS_AT + 2 * number..COUNTS_AT + 2 * number + 2].copy_from_slice(&count);
        for value in values {
            packed.extend_from_slice(&value.to_le_bytes());
        }
    }
    let mut differs = [0_u8; HEAD_BYTES];
    for head in cells.chunks_exact(HEAD_BYTES) {
        for ((differ, &byte), &first) in differs.iter_mut().zip(head).zip(&cells) {
            *differ |= byte ^ first;
        }
    }
    for (plane, &differ) in differs.iter().enumerate() {
        if differ == 0 {
            packed[MASK_BYTES + plane] = cells[plane];
        } else {
            packed[plane / 8] |= 1 << (plane % 8);
            packed.extend(cells.iter().skip(plane).step_by(HEAD_BYTES));
        }
    }
    if whole.iter().all(|&flag| (flag != 0) == (whole[0] != 0)) {
        packed[MASK_BYTES + HEAD_BYTES] = u8::from(whole[0] != 0);
    } else {
        packed[HEAD_BYTES / 8] |= 1 << (HEAD_BYTES % 8);
        packed.extend(whole.iter().map(|&flag| u8::from(flag != 0)));
    }
    Some(packed)
}

/// The distinct values of a column, ascending; none when there are more than `most`.
fn distinct(cells: &[u8], at: usize, most: usize) -> Vec<u64> {
    let mut values: Vec<u64> = Vec::new();
    let mut last = None;
    for head in cells.chunks_exact(HEAD_BYTES) {
        let value = cell(head, at);
        if last == Some(value) {
            continue;
        }
        last = Some(value);
        if let Err(place) = values.binary_search(&value) {
            if values.len() == most {
                return Vec::new();
            }
            values.insert(place, value);
        }
    }
    values
}

/// The heads and the flags (0 or 1) that were packed; None for bytes that `pack` never gives for so many rows.
#[must_use]
pub fn unpack(packed: &[u8], rows: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    if rows == 0 || rows > ROWS_MAX || packed.len() < LISTS_AT {
        return None;
    }
    let counts: [usize; LISTED.len()] = std::array::from_fn(|number| {
        let at = COUNTS_AT + 2 * number;
        usize::from(u16::from_le_bytes([packed[at], packed[at + 1]]))
    });
    let planes_at = LISTS_AT + 8 * counts.iter().sum::<usize>();
    let varies: Vec<usize> =
        (0..8 * MASK_BYTES).filter(|plane| packed[plane / 8] >> (plane % 8) & 1 != 0).collect();
    let fits = varies.last().is_none_or(|&plane| plane < PLANES);
    if !fits || packed.len() != planes_at + varies.len() * rows {
        return None;
    }
    let mut cells = packed[MASK_BYTES..MASK_BYTES + HEAD_BYTES].repeat(rows);
    let mut whole = vec![u8::from(packed[MASK_BYTES + HEAD_BYTES] != 0); rows];
    for (&plane, bytes) in varies.iter().zip(packed[planes_at..].chunks_exact(rows)) {
        if plane == HEAD_BYTES {
            whole = bytes.iter().map(|&flag| u8::from(flag != 0)).collect();
            continue;
        }
        for (head, &byte) in cells.chunks_exact_mut(HEAD_BYTES).zip(bytes) {
            head[plane] = byte;
        }
    }
    let mut sum = 0_u64;
    for head in cells.chunks_exact_mut(HEAD_BYTES) {
        let step = cell(head, FINGERPRINT);
        sum = sum.wrapping_add(step);
        set_cell(head, FINGERPRINT, (sum & LOW) | (step & !LOW));
    }
    let mut list_at = LISTS_AT;
    for (&at, &count) in LISTED.iter().zip(&counts) {
        if count == 0 {
            continue;
        }
        let list = &packed[list_at..list_at + 8 * count];
        for head in cells.chunks_exact_mut(HEAD_BYTES) {
            let place = usize::try_from(cell(head, at)).ok().filter(|&place| place < count)?;
            set_cell(head, at, cell(list, 8 * place));
        }
        list_at += 8 * count;
    }
    Some((cells, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(rows: usize) -> Vec<u8> {
        let mut cells = vec![7; rows * HEAD_BYTES];
        for (row, head) in cells.chunks_exact_mut(HEAD_BYTES).enumerate() {
            set_cell(head, FINGERPRINT, (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            set_cell(head, LISTED[0], u64::MAX - (row % 3) as u64);
            set_cell(head, LISTED[1], row as u64);
        }
        cells
    }

    #[test]
    fn what_was_packed_comes_back() {
        for rows in [1, 2, 7, 8, 511, 512] {
            let cells = heads(rows);
            let whole: Vec<u8> = (0..rows).map(|row| u8::from(row % 5 != 0)).collect();
            let packed = pack(&cells, &whole).expect("rows in range");
            assert_eq!(unpack(&packed, rows), Some((cells, whole)));
        }
    }

    #[test]
    fn what_all_rows_share_takes_no_plane() {
        let packed = pack(&heads(512), &[1; 512]).expect("rows in range");
        assert!(packed.len() < 512 * 13);
    }

    #[test]
    fn other_bytes_are_refused() {
        let packed = pack(&heads(16), &[1; 16]).expect("rows in range");
        assert_eq!(unpack(&packed, 15), None);
        assert_eq!(unpack(&packed[..packed.len() - 1], 16), None);
        assert_eq!(unpack(&[], 1), None);
        assert_eq!(pack(&[0; 71], &[1]), None);
        assert_eq!(pack(&[], &[]), None);
    }
}
