//! The fields of a struct by their names: every key that is read or written is looked up, so it is a hash, not a search.

use super::Field;

/// Open addressing over indexes of fields; at most half of the places are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    places: Box<[u16]>,
}

const FREE: u16 = u16::MAX;

impl Names {
    pub(crate) fn of(fields: &[Field]) -> Self {
        let mut places = vec![FREE; (2 * fields.len()).next_power_of_two()].into_boxed_slice();
        for (index, field) in (0u16..).zip(fields) {
            let mut at = hash(&field.name) & (places.len() - 1);
            while places[at] != FREE {
                at = (at + 1) & (places.len() - 1);
            }
            places[at] = index;
        }
        Self { places }
    }

    pub(crate) fn find(&self, fields: &[Field], name: &str) -> Option<usize> {
        let last = self.places.len().checked_sub(1)?;
        let mut at = hash(name) & last;
        loop {
            let index = usize::from(self.places[at]);
            // No field has the number of a free place.
            let field = fields.get(index)?;
            if *field.name == *name {
                return Some(index);
            }
            at = (at + 1) & last;
        }
    }
}

/// Length, head and tail tell the names of a struct well apart.
fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let word = |part: &[u8]| part.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let (head, tail) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => (word(bytes), 0),
    };
    let mixed = (head ^ tail.rotate_left(23) ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_field_of_every_type_is_found_and_nothing_else() {
        for ty in crate::builtin().types() {
            for (index, field) in ty.fields.iter().enumerate() {
                assert_eq!(ty.field_index(&field.name), Some(index), "{} of {}", field.name, ty.name);
            }
            for other in ["", "nosuchfield", "metadat", "spe"] {
                assert_eq!(ty.field_index(other), ty.fields.iter().position(|field| *field.name == *other));
            }
        }
    }
}
