//! Protocol Buffers encoding (<https://protobuf.dev/programming-guides/encoding/>).

/// The Protocol Buffers wire types that OTLP needs.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// An encoded message. Fields are written in call order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire_type: u64) {
        self.put_varint(u64::from(field) << 3 | wire_type);
    }

    /// Writes a variable-length number: an integer, an enumeration or a boolean.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.put_varint(value);
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, LENGTH);
        self.put_varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    pub(super) fn message(&mut self, field: u32, value: &Self) {
        self.bytes(field, &value.0);
    }

    /// Writes a repeated field with eight-byte numbers.
    pub(super) fn packed64(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let packed: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &packed);
    }

    /// Returns the encoded message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_in_the_specification() {
        let mut inner = Message::default();
        inner.number(1, 150);
        let mut message = Message::default();
        message.message(3, &inner);
        message.text(2, "testing");
        message.fixed32(4, 1);
        message.fixed64(5, 2);
        message.double(6, 1.0);
        message.packed64(16, [1, 2]);
        let expected = [
            &[0x1a, 3, 0x08, 0x96, 0x01][..],
            b"\x12\x07testing",
            &[0x25, 1, 0, 0, 0],
            &[0x29, 2, 0, 0, 0, 0, 0, 0, 0],
            &[0x31, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            &[0x82, 0x01, 16, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(message.into_bytes(), expected);
    }
}
