//! Draws anti-aliased shapes and text.

use super::{font, png};

/// Red, green and blue.
pub(super) type Colour = [u8; 3];

/// A position in pixels from the top left.
pub(super) type Point = (f64, f64);

/// An RGB image.
pub(super) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize, background: Colour) -> Self {
        Self { width, height, pixels: vec![background; width * height] }
    }

    /// Returns the image as a PNG file.
    pub(super) fn png(&self) -> Vec<u8> {
        png::encode(self.width, &self.pixels)
    }

    /// Fills a rectangle with rounded corners.
    pub(super) fn fill(&mut self, (left, top): Point, (right, bottom): Point, radius: f64, colour: Colour) {
        let centre = (left.midpoint(right), top.midpoint(bottom));
        let half = ((right - left) / 2.0, (bottom - top) / 2.0);
        let radius = radius.min(half.0).min(half.1).max(0.0);
        self.shade((left, top), (right, bottom), colour, 1.0, |(x, y)| {
            let corner = ((x - centre.0).abs() - half.0 + radius, (y - centre.1).abs() - half.1 + radius);
            corner.0.max(0.0).hypot(corner.1.max(0.0)) + corner.0.max(corner.1).min(0.0) - radius
        });
    }

    /// Fills a circle.
    pub(super) fn dot(&mut self, centre: Point, radius: f64, colour: Colour) {
        let corner = |sign: f64| (centre.0 + sign * radius, centre.1 + sign * radius);
        self.shade(corner(-1.0), corner(1.0), colour, 1.0, |(x, y)| (x - centre.0).hypot(y - centre.1) - radius);
    }

    /// Draws a line through points, with round ends and joints.
    pub(super) fn stroke(&mut self, points: &[Point], weight: f64, colour: Colour) {
        // One coverage buffer for the whole line, so that joints are not blended twice.
        let mut coverage = vec![0.0_f64; self.width * self.height];
        let dot = [points.first().copied().unwrap_or_default(); 2];
        let pieces = if points.len() == 1 { dot.windows(2) } else { points.windows(2) };
        let reach = weight / 2.0 + 1.0;
        for piece in pieces {
            let (from, to) = (piece[0], piece[1]);
            let low = (from.0.min(to.0) - reach, from.1.min(to.1) - reach);
            let high = (from.0.max(to.0) + reach, from.1.max(to.1) + reach);
            for (x, y) in self.pixels_within(low, high) {
                let distance = distance((x as f64 + 0.5, y as f64 + 0.5), from, to);
                let covered = (weight / 2.0 + 0.5 - distance).clamp(0.0, 1.0);
                let known = &mut coverage[y * self.width + x];
                *known = known.max(covered);
            }
        }
        for (pixel, covered) in self.pixels.iter_mut().zip(coverage) {
            blend(pixel, colour, covered);
        }
    }

    /// Tints the area between a line and a horizontal level.
    pub(super) fn tint(&mut self, points: &[Point], level: f64, colour: Colour, strength: f64) {
        for piece in points.windows(2) {
            let (from, to) = (piece[0], piece[1]);
            for x in self.columns(from.0.ceil(), to.0.ceil()) {
                let part = (x as f64 - from.0) / (to.0 - from.0).max(f64::MIN_POSITIVE);
                let edge = from.1 + (to.1 - from.1) * part.clamp(0.0, 1.0);
                let (low, high) = (edge.min(level), edge.max(level));
                let column = (x as f64, low);
                self.shade(column, (x as f64 + 1.0, high), colour, strength, |(_, y)| {
                    (y - low.midpoint(high)).abs() - (high - low) / 2.0
                });
            }
        }
    }

    /// Draws text from its top left corner. Capitals are `size` pixels high.
    pub(super) fn text(&mut self, (left, top): Point, size: f64, weight: f64, colour: Colour, text: &str) {
        let unit = size / font::CAPITALS;
        let mut left = left;
        for character in text.chars() {
            let glyph = font::glyph(character);
            for stroke in &glyph.strokes {
                let points: Vec<Point> = stroke.iter().map(|(x, y)| (left + x * unit, top + y * unit)).collect();
                self.short_stroke(&points, weight, colour);
            }
            left += glyph.advance * unit;
        }
    }

    /// Draws a short line without a buffer for the whole canvas.
    fn short_stroke(&mut self, points: &[Point], weight: f64, colour: Colour) {
        let reach = weight / 2.0 + 1.0;
        let extreme = |pick: fn(f64, f64) -> f64, start: f64| {
            points.iter().fold((start, start), |found, point| (pick(found.0, point.0), pick(found.1, point.1)))
        };
        let (low, high) = (extreme(f64::min, f64::INFINITY), extreme(f64::max, f64::NEG_INFINITY));
        let (low, high) = ((low.0 - reach, low.1 - reach), (high.0 + reach, high.1 + reach));
        self.shade(low, high, colour, 1.0, |place| {
            let first = points.first().map_or(f64::INFINITY, |only| distance(place, *only, *only));
            points.windows(2).map(|piece| distance(place, piece[0], piece[1])).fold(first, f64::min) - weight / 2.0
        });
    }

    /// Blends pixels by their signed distance from the edge of a shape; negative is inside.
    fn shade(&mut self, low: Point, high: Point, colour: Colour, strength: f64, edge: impl Fn(Point) -> f64) {
        for (x, y) in self.pixels_within(low, high) {
            let covered = (0.5 - edge((x as f64 + 0.5, y as f64 + 0.5))).clamp(0.0, 1.0);
            blend(&mut self.pixels[y * self.width + x], colour, covered * strength);
        }
    }

    fn columns(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        let limit = self.width as f64;
        from.floor().clamp(0.0, limit) as usize..to.ceil().clamp(0.0, limit) as usize
    }

    fn pixels_within(&self, low: Point, high: Point) -> impl Iterator<Item = (usize, usize)> + use<> {
        let limit = self.height as f64;
        let rows = low.1.floor().clamp(0.0, limit) as usize..high.1.ceil().clamp(0.0, limit) as usize;
        let columns = self.columns(low.0, high.0);
        rows.flat_map(move |y| columns.clone().map(move |x| (x, y)))
    }
}

fn blend(pixel: &mut Colour, colour: Colour, covered: f64) {
    if covered <= 0.0 {
        return;
    }
    for (old, new) in pixel.iter_mut().zip(colour) {
        *old = (f64::from(*old) + (f64::from(new) - f64::from(*old)) * covered).round() as u8;
    }
}

/// Returns the distance from a point to a line segment.
fn distance(place: Point, from: Point, to: Point) -> f64 {
    let along = (to.0 - from.0, to.1 - from.1);
    let length = along.0 * along.0 + along.1 * along.1;
    let part = ((place.0 - from.0) * along.0 + (place.1 - from.1) * along.1) / length.max(f64::MIN_POSITIVE);
    let part = part.clamp(0.0, 1.0);
    (place.0 - from.0 - part * along.0).hypot(place.1 - from.1 - part * along.1)
}
