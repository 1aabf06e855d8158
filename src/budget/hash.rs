//! The hash that keys are looked up by.
//!
//! A look-up is made for every call. This costs a few multiplications where std's hash costs hundreds of
//! instructions, and like that it is seeded at random: who does not know the seed cannot choose hosts
//! that collide. With at most a few thousand keys that is as much as there is to gain.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes the hashers of one map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed {
    start: u64,
    factor: u64,
}

impl Seed {
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        Self {
            start: random.hash_one(0),
            // Odd, so that no word is lost.
            factor: random.hash_one(1) | 1,
        }
    }
}

impl BuildHasher for Seed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded {
            state: self.start,
            factor: self.factor,
        }
    }
}

/// Multiplies word by word, and folds the upper half of each product into the lower one.
pub(super) struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(8);
        let last = last_word(words.remainder());
        for word in words {
            self.write_u64(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        // Of strings of zeros the lengths are told apart.
        self.write_u64(last ^ (bytes.len() as u64).rotate_right(8));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        let [low, high] = [product, product >> 64].map(|half| half & u128::from(u64::MAX));
        self.state = u64::try_from(low ^ high).unwrap_or_default();
    }

    fn finish(&self) -> u64 {
        // Once more, for the high bits of short keys.
        let mut last = Self { ..*self };
        last.write_u64(last.factor.rotate_right(32));
        last.state
    }
}

/// Less than eight bytes as a word. Put together in a register: what is written to memory byte by byte
/// and read back as a word has the processor wait.
pub(super) fn last_word(bytes: &[u8]) -> u64 {
    let shift = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Key;
    use std::collections::HashSet;

    #[test]
    fn spreads_keys_over_all_bits() {
        let seed = Seed::random();
        let hash = |n: u32| {
            let uri = format!("http://h{n}.example.com:{}", n % 7);
            seed.hash_one(Key::from_uri(&uri.parse().unwrap()))
        };
        let hashes: Vec<u64> = (0..4096).map(hash).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), 4096);
        for bit in 0..64 {
            let set = hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count();
            assert!((1_700..2_400).contains(&set), "bit {bit} in {set} of 4096");
        }
    }

    #[test]
    fn differs_from_seed_to_seed() {
        let key = Key::from_static("search");
        let (one, other) = (Seed::random(), Seed::random());
        assert_eq!(one.hash_one(&key), one.hash_one(&key));
        assert_ne!(one.hash_one(&key), other.hash_one(&key));
    }

    #[test]
    fn tells_lengths_apart() {
        let seed = Seed::random();
        let lengths: HashSet<u64> = (0..20)
            .map(|len| {
                let mut hasher = seed.build_hasher();
                hasher.write(&vec![0; len]);
                hasher.finish()
            })
            .collect();
        assert_eq!(lengths.len(), 20);
    }
}
