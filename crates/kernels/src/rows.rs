//! A table over row numbers that grows in segments: what stands in it is never copied to a larger place.

/// Stands for "no row", and is therefore no row.
pub const NONE: u32 = u32::MAX;

const SEGMENT_BITS: u32 = 14;
const SEGMENT_ROWS: usize = 1 << SEGMENT_BITS;

/// One `T` per row; rows that nobody has written to hold the filling and cost nothing but their segment.
pub struct Rows<T> {
    segments: Vec<Option<Box<[T]>>>,
    filling: T,
}

impl<T: Clone> Rows<T> {
    /// A table in which every row holds `filling`.
    pub fn new(filling: T) -> Self {
        Self { segments: Vec::new(), filling }
    }

    /// What the row holds.
    pub fn get(&self, row: u32) -> &T {
        match self.segments.get((row >> SEGMENT_BITS) as usize) {
            Some(Some(segment)) => &segment[row as usize % SEGMENT_ROWS],
            _ => &self.filling,
        }
    }

    /// The place of the row, made if need be.
    pub fn place(&mut self, row: u32) -> &mut T {
        let number = (row >> SEGMENT_BITS) as usize;
        if number >= self.segments.len() {
            self.segments.resize_with(number + 1, || None);
        }
        let filling = &self.filling;
        let segment = self.segments[number]
            .get_or_insert_with(|| vec![filling.clone(); SEGMENT_ROWS].into_boxed_slice());
        &mut segment[row as usize % SEGMENT_ROWS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_what_was_put_there_and_all_others_the_filling() {
        let mut rows = Rows::new(-1_i64);
        *rows.place(20_000) = 7;
        assert_eq!((7, -1, -1), (*rows.get(20_000), *rows.get(19_999), *rows.get(NONE - 1)));
    }
}
