/**
 * Words of the two texts, and which of them belong together.
 *
 * The server gives attention between tokens: pieces of words. Each piece is looked up in its text, in order, and counts for
 * the word in which it begins. A piece that the text does not have, because the tokenizer normalizes it or because it is a
 * special symbol, is left out.
 *
 * @typedef {{element: HTMLElement, start: number, end: number, wordLike: boolean}} Word
 * @typedef {{text: string, words: Word[]}} Side
 * @typedef {{start: number, end: number}} Range
 * @typedef {{source: string, translation: string, source_tokens: string[], tokens: string[], weights: number[][], words: [string, number][] | null}} Sentence
 * @typedef {{source: Map<number, number>[], target: Map<number, number>[], probabilities: (number | undefined)[]}} Alignment
 */

const SLACK = 24; // characters between one piece and the next that may be unknown to the tokenizer
const segmenter = new Intl.Segmenter(undefined, { granularity: "word" }); // finds words of Chinese or Thai too

/** Show a text in an element with a <span> for each word if `split`, else as it is, without words. @returns {Side} */
export function show(box, text, split) {
  if (!split) {
    box.textContent = text;
    return { text, words: [] };
  }
  const fragment = document.createDocumentFragment(), words = [];
  for (const { segment, index, isWordLike } of segmenter.segment(text)) {
    if (!segment.trim()) {
      fragment.append(segment);
      continue;
    }
    const element = document.createElement("span");
    element.className = "word";
    element.textContent = segment;
    fragment.append(element);
    words.push({ element, start: index, end: index + segment.length, wordLike: isWordLike });
  }
  box.replaceChildren(fragment);
  return { text, words };
}

/** Return the index of the word that has a character; -1 if none has. */
export const wordAt = (side, position) => side.words.findIndex(({ start, end }) => start <= position && position < end);

/**
 * Return for each word the words of the other text with the weights, 0 to 1, that the translation's word gives to them,
 * and the probability of each word of the translation; null if the sentences are not those of this translation.
 *
 * @param {Side} source @param {Side} target @param {Sentence[]} sentences @returns {Alignment | null}
 */
export function align(source, target, sentences) {
  const alignment = { source: source.words.map(() => new Map()), target: target.words.map(() => new Map()), probabilities: [] };
  let from = 0, to = 0;
  for (const sentence of sentences) {
    const there = find(target.text, sentence.translation, to);
    if (!there) return null;
    const here = find(source.text, sentence.source, from) ?? { start: from, end: source.text.length };
    [from, to] = [here.end, there.end];
    connect(alignment, sentence.weights, places(source, sentence.source_tokens, here), places(target, sentence.tokens, there));
    estimate(alignment, sentence.words ?? [], target, there);
  }
  return alignment;
}

/** Add the weights between pieces to those between words: a sum over pieces of the source, a mean over those of the translation. */
function connect(alignment, weights, columns, rows) {
  const counts = new Map();
  for (const [word] of rows) if (word !== undefined) counts.set(word, (counts.get(word) ?? 0) + 1);
  rows.forEach(([word], i) => columns.forEach(([other], j) => {
    if (word === undefined || other === undefined) return;
    const weight = (alignment.target[word].get(other) ?? 0) + (weights[i]?.[j] ?? 0) / counts.get(word);
    alignment.target[word].set(other, weight);
    alignment.source[other].set(word, weight);
  }));
}

/** Note the probabilities of words. Punctuation that is joined to a word counts as part of it, and has none of its own. */
function estimate(alignment, words, target, range) {
  places(target, words.map(([word]) => word), range, true).forEach((place, k) => {
    for (const word of place) if (place.length === 1 || target.words[word].wordLike) alignment.probabilities[word] = words[k][1];
  });
}

/** Return for each piece the words it lies in; only the one in which it begins unless `all`. @returns {number[][]} */
function places(side, pieces, range, all = false) {
  let next = range.start;
  return pieces.map((piece) => {
    const found = find(side.text, piece.replaceAll("▁", " "), next);
    if (!found || found.start > next + SLACK || found.end > range.end) return [];
    next = found.end;
    const first = wordAt(side, found.start);
    let last = first;
    while (all && last >= 0 && side.words[last + 1]?.start < found.end) last++;
    return first < 0 ? [] : Array.from({ length: last - first + 1 }, (_, k) => first + k);
  });
}

/** Find a part of a text without regard to case and outer spaces. @returns {Range | null} */
function find(text, part, from) {
  const wanted = folded(part.trim()), start = folded(text).indexOf(wanted, from);
  return wanted && start >= 0 ? { start, end: start + wanted.length } : wanted ? null : { start: from, end: from };
}

function folded(text) { // the same positions in small letters: "İ" alone would become longer
  return text.replaceAll("İ", "i").toLowerCase();
}
