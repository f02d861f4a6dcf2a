//! Encodes RGB images as PNG (<https://www.w3.org/TR/png-3/>).
//!
//! Each row is filtered by the one above it, which turns a chart's flat areas into zeros. Runs of equal bytes then
//! compress well with DEFLATE's fixed Huffman code (RFC 1951), without any further search for matches.

/// The longest run in one DEFLATE match.
const MAX_RUN: usize = 258;

/// Encodes rows with 3 bytes per pixel.
pub(super) fn encode(width: usize, pixels: &[[u8; 3]]) -> Vec<u8> {
    let rows: Vec<&[u8]> = pixels.chunks(width.max(1)).map(<[[u8; 3]]>::as_flattened).collect();
    let mut filtered = Vec::with_capacity(rows.len() * (width * 3 + 1));
    let mut above: &[u8] = &[];
    for row in &rows {
        // Filter type 2, "Up".
        filtered.push(2);
        let up = above.iter().copied().chain(std::iter::repeat(0));
        filtered.extend(row.iter().zip(up).map(|(byte, up)| byte.wrapping_sub(up)));
        above = row;
    }
    let mut header = Vec::new();
    header.extend((width as u32).to_be_bytes());
    header.extend((rows.len() as u32).to_be_bytes());
    // 8 bits per sample, RGB, and the only compression, filter and interlace methods.
    header.extend([8, 2, 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    write_chunk(&mut file, *b"IHDR", &header);
    write_chunk(&mut file, *b"IDAT", &zlib(&filtered));
    write_chunk(&mut file, *b"IEND", &[]);
    file
}

fn write_chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let checksum = crc32(&file[start..]);
    file.extend(checksum.to_be_bytes());
}

/// Compresses data into a zlib stream (RFC 1950) with one block and fixed Huffman codes.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut out = BitWriter { bytes: vec![0x78, 0x01], bits: 0, count: 0 };
    // The last block, with fixed codes.
    out.write(0b011, 3);
    let mut at = 0;
    while let Some(&byte) = data.get(at) {
        out.write_symbol(u16::from(byte));
        at += 1;
        let run = data[at..].iter().take(MAX_RUN).take_while(|next| **next == byte).count();
        if run >= 3 {
            out.write_run(run);
            at += run;
        }
    }
    // The end-of-block symbol.
    out.write_symbol(256);
    out.flush();
    out.bytes.extend(adler32(data).to_be_bytes());
    out.bytes
}

/// Writes bits, least significant first.
struct BitWriter {
    bytes: Vec<u8>,
    bits: u32,
    count: u32,
}

impl BitWriter {
    fn write(&mut self, value: u32, length: u32) {
        self.bits |= value << self.count;
        self.count += length;
        while self.count >= 8 {
            self.bytes.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    /// Writes a literal or a length with the fixed Huffman code (RFC 1951, section 3.2.6).
    fn write_symbol(&mut self, symbol: u16) {
        let symbol = u32::from(symbol);
        let (code, length) = match symbol {
            0..144 => (0x30 + symbol, 8),
            144..256 => (0x190 + symbol - 144, 9),
            256..280 => (symbol - 256, 7),
            _ => (0xc0 + symbol - 280, 8),
        };
        // Huffman codes are written most significant bit first.
        self.write(code.reverse_bits() >> (32 - length), length);
    }

    /// Writes a 3 to 258 byte match at distance 1 (RFC 1951, section 3.2.5).
    fn write_run(&mut self, run: usize) {
        if run == MAX_RUN {
            self.write_symbol(285);
        } else {
            let length = run as u32 - 3;
            let extra = length.checked_ilog2().unwrap_or(0).saturating_sub(2);
            self.write_symbol((257 + 4 * extra + (length >> extra)) as u16);
            self.write(length & ((1 << extra) - 1), extra);
        }
        // Distance code 0.
        self.write(0, 5);
    }

    fn flush(&mut self) {
        if self.count > 0 {
            self.write(0, 8 - self.count);
        }
    }
}

/// The PNG chunk checksum (<https://www.w3.org/TR/png-3/#5CRC-algorithm>).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// The zlib stream checksum (RFC 1950, section 9).
fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_of_a_run_is_decoded() {
        for width in [1, 2, 3, 4, 5, 9, 10, 11, 85, 86, 87, 171, 172, 173, 300] {
            for pixel in [[0, 0, 0], [143, 143, 143], [144, 144, 255], [1, 2, 3]] {
                let pixels: Vec<[u8; 3]> =
                    (0..width * 3).map(|at| if at % 7 == 6 { [at as u8, 200, 9] } else { pixel }).collect();
                let file = encode(width, &pixels);
                let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG file");
                let mut decoded = vec![0; reader.output_buffer_size().expect("a size")];
                let frame = reader.next_frame(&mut decoded).expect("an image");
                assert_eq!((frame.width as usize, frame.height), (width, 3));
                assert_eq!(decoded, pixels.as_flattened(), "{width} {pixel:?}");
            }
        }
    }
}
