//! Keyed hashing by SipHash-1-3. An outsider can neither choose where a connection lands in a table
//! nor guess sequence numbers, ports, cookies and timestamp offsets.

use std::hash::{BuildHasher, RandomState};

/// A secret key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key(u64, u64);

/// One key for each use, so that a leak of one does not help against another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) demux: Key,
    pub(crate) sequence: Key,
    pub(crate) timestamps: Key,
    pub(crate) ports: Key,
    pub(crate) cookies: Key,
}

impl Keys {
    /// Derives the keys from a seed, or from the system's randomness. `host`: a secret that
    /// outlives the process, for numbers that peers remember.
    pub(crate) fn new(seed: Option<u64>, host: Option<[u64; 2]>) -> Keys {
        let (a, b) = match seed {
            Some(seed) => (seed, !seed),
            // The standard library's own source of hash keys: random for each process, from the
            // system.
            None => (RandomState::new().hash_one(1u8), RandomState::new().hash_one(2u8)),
        };
        let root = Key(a, b);
        let lasting = host.map_or(root, |[a, b]| Key(a, b));
        let of = |root: Key, n: u64| Key(root.hash([n, 0]), root.hash([n, 1]));
        Keys {
            demux: of(root, 1),
            sequence: of(lasting, 2),
            timestamps: of(lasting, 3),
            ports: of(root, 4),
            cookies: of(root, 5),
        }
    }
}

impl Key {
    pub(crate) fn new([a, b]: [u64; 2]) -> Key {
        Key(a, b)
    }

    /// SipHash-1-3 of whole words. Their number is known, so that no loop is left.
    #[inline]
    pub(crate) fn hash<const N: usize>(self, words: [u64; N]) -> u64 {
        let mut v = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        let mut absorb = |word: u64| {
            v[3] ^= word;
            round(&mut v);
            v[0] ^= word;
        };
        for word in words {
            absorb(word);
        }
        absorb((N as u64 * 8) << 56);
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    /// The standard library's default hasher is SipHash-1-3 with a key of zeros.
    #[test]
    fn it_is_siphash_1_3() {
        fn compare<const N: usize>() {
            let words: [u64; N] = std::array::from_fn(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut reference = std::hash::DefaultHasher::new();
            for word in &words {
                reference.write(&word.to_le_bytes());
            }
            assert_eq!(Key(0, 0).hash(words), reference.finish(), "{N} words");
        }
        compare::<0>();
        compare::<1>();
        compare::<3>();
        compare::<5>();
    }

    #[test]
    fn a_seed_decides_and_no_seed_does_not() {
        let of = |seed| Keys::new(seed, None).demux.hash([7]);
        assert_eq!(of(Some(3)), of(Some(3)));
        assert_ne!(of(Some(3)), of(Some(4)));
        assert_ne!(of(None), of(None));
        let lasting = || Keys::new(None, Some([3, 4]));
        let (first, second) = (lasting(), lasting());
        assert_eq!(first.sequence.hash([7]), second.sequence.hash([7]));
        assert_ne!(first.ports.hash([7]), second.ports.hash([7]));
    }
}
