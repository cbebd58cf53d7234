/**
 * The page of `nmt serve`: type on one side, read the translation on the other.
 *
 *     input ──▶ translate: wait, ask, show ──▶ state.result ──▶ point: attention of the words, asked for when first needed
 *
 * Each request belongs to an AbortController; a later request aborts the one before it, so a stale answer is never shown.
 *
 * @typedef {import("./words.js").Side} Side
 * @typedef {import("./words.js").Alignment} Alignment
 * @typedef {{source: Side, target: Side, asked: boolean, alignment: Alignment | null}} Result
 */

import { offerFiles } from "./files.js";
import { Refusal, ask, key, pause, persist } from "./requests.js";
import { align, show, wordAt } from "./words.js";

const LONGEST = 2000; // characters of a text whose words can be pointed at: the server gives attention for no more
const LEAST = 0.05; // attention that is shown
const ALTERNATIVES = 3;
const NEAR = 10000; // characters before the limit from which on it is shown
const at = (id) => document.getElementById(id);
const text = at("text"), translation = at("translation"), source = at("source"), target = at("target");

const state = {
  languages: [], // of the server: {code, name, targets}
  settings: {},
  detected: "", // code of the language that the server has detected
  result: /** @type {Result | null} */ (null), // null as soon as the text is another one
  request: new AbortController(), // of the translation and its attention
  pointed: /** @type {{side: "source" | "target", word: number} | null} */ (null),
};

// Translation

/** Translate what is typed, after a pause of so many seconds. */
async function translate(seconds = 0) {
  state.request.abort();
  const { signal } = (state.request = new AbortController());
  const q = text.value;
  translation.removeAttribute("aria-busy");
  if (!q.trim()) return forget();
  if (left() < 0) return say("The text is too long: it is not translated.", true);
  try {
    await pause(seconds, signal);
    const begun = performance.now();
    translation.setAttribute("aria-busy", "true");
    const body = { q, source: source.value, target: target.value, format: "text", alternatives: ALTERNATIVES };
    const answer = await persist(() => noticed(ask("translate", signal, body), signal), signal, complain);
    state.detected = answer.detectedLanguage?.language ?? "";
    showResult(q, answer.translatedText, answer.alternatives ?? []);
    say(`${detection(answer.detectedLanguage)}Translated in ${((performance.now() - begun) / 1000).toFixed(2)} s.`);
  } catch (error) {
    if (!signal.aborted && !(error instanceof Refusal)) throw error;
  } finally {
    if (!signal.aborted) translation.removeAttribute("aria-busy");
  }
}

/** Say that an answer is awaited if it takes long enough to be noticed. */
async function noticed(answer, signal) {
  const timer = setTimeout(() => { if (!signal.aborted) say("Translating…"); }, 300);
  return answer.finally(() => clearTimeout(timer));
}

/** Show the translation of `q` and the others that can be taken in its place. */
function showResult(q, best, alternatives) {
  const split = Math.max(q.length, best.length) <= LONGEST;
  translation.lang = target.value;
  translation.classList.remove("stale");
  state.result = { source: show(at("mirror"), q, split), target: show(translation, best, split), asked: false, alignment: null };
  at("mirror").append("\n"); // a last empty line counts too
  point(null);
  at("copy").hidden = false;
  at("others").hidden = !alternatives.length;
  at("alternatives").replaceChildren(...alternatives.map((alternative) => {
    const button = document.createElement("button"), item = document.createElement("li");
    Object.assign(button, { type: "button", dir: "auto", lang: target.value, textContent: alternative, title: "Use this translation" });
    button.onclick = () => {
      if (!state.result) return; // another text is being translated
      showResult(q, alternative, alternatives.map((other) => (other === alternative ? best : other)));
      translation.focus();
    };
    item.append(button);
    return item;
  }));
}

/** Show no translation. */
function forget() {
  translation.replaceChildren();
  Object.assign(state, { result: null, detected: "" });
  for (const id of ["copy", "others"]) at(id).hidden = true;
  point(null);
  say("");
}

/** The text has changed: keep the mirror as tall as it, and count. */
function typed() {
  at("mirror").textContent = `${text.value}\n`;
  at("clear").hidden = !text.value;
  document.body.classList.toggle("long", text.value.length > 600);
  const rest = left();
  at("count").textContent = rest > NEAR ? counted(length()) : rest < 0 ? `${counted(-rest)} too many` : `${counted(rest)} left`;
  at("count").classList.toggle("bad", rest < 0);
  point(null);
  state.result = null;
  translation.classList.add("stale");
}

const counted = (count) => `${count.toLocaleString("en")} character${count === 1 ? "" : "s"}`;
const length = () => [...text.value].length;
const left = () => (state.settings.charLimit > 0 ? state.settings.charLimit - length() : Infinity);
const detection = (found) => (found ? `Detected: ${nameOf(found.language)}. ` : "");

function say(words, bad = false) {
  at("status").textContent = words;
  at("status").classList.toggle("bad", bad);
}

function complain(refusal, seconds) {
  say(seconds === null ? refusal.words : `${refusal.words} Trying again in ${seconds} s.`, true);
  if (refusal.status === 403) askForKey();
}

function askForKey() {
  at("key-form").hidden = false;
  at("key").focus();
}

// Words

/** Mark a word and those of the other text that belong to it; null: none. */
function point(spot) {
  const { result } = state;
  state.pointed = spot;
  for (const { element } of result ? [...result.source.words, ...result.target.words] : []) {
    element.classList.remove("on");
    element.style.removeProperty("--weight");
  }
  at("word").textContent = "";
  if (!spot || !result) return;
  result[spot.side].words[spot.word].element.classList.add("on");
  if (result.alignment) relate(result, spot);
  else if (!result.asked) attend(result);
}

/** Mark the words that a word belongs to, and name the nearest ones. */
function relate(result, { side, word }) {
  const others = result[side === "source" ? "target" : "source"].words, { element } = result[side].words[word];
  const related = [...result.alignment[side][word]].filter(([, weight]) => weight >= LEAST).sort((a, b) => b[1] - a[1]);
  for (const [other, weight] of related) others[other].element.style.setProperty("--weight", weight.toFixed(3));
  const names = related.slice(0, 3).map(([other, weight]) => `${others[other].element.textContent} ${percent(weight)}`).join(", ") || "no word";
  const probability = side === "target" ? result.alignment.probabilities[word] : undefined;
  at("word").textContent = `${element.textContent} ${side === "source" ? "→" : "←"} ${names}${probability === undefined ? "" : ` · probability ${percent(probability)}`}`;
}

const percent = (share) => `${Math.round(100 * share)} %`;

/** Ask for the attention of a result, once: the page works without it. */
async function attend(result) {
  result.asked = true;
  const { signal } = state.request;
  try {
    const { sentences } = await ask("nmt/attention", signal, { q: result.source.text, source: state.detected || source.value, target: target.value });
    result.alignment = align(result.source, result.target, sentences);
    if (state.result === result) point(state.pointed);
  } catch (error) {
    if (error instanceof Refusal) result.asked = !error.passes; // if it passes: asked again for the next word
    else if (!signal.aborted) throw error;
  }
}

/** Point at the word of a text that has an element, or a character. */
function pointAt(side, word) {
  if (!state.result || word < 0) return point(null);
  if (state.pointed?.side !== side || state.pointed.word !== word) point({ side, word });
}

function hover(side, event) {
  const under = document.elementsFromPoint(event.clientX, event.clientY).find((element) => element.classList.contains("word"));
  pointAt(side, under ? (state.result?.[side].words.findIndex(({ element }) => element === under) ?? -1) : -1);
}

/** Move with the arrow keys from word to word of the translation. */
function step(event) {
  const count = state.result?.target.words.length ?? 0, forward = translation.matches(":dir(rtl)") ? "ArrowLeft" : "ArrowRight";
  const now = state.pointed?.side === "target" ? state.pointed.word : -1;
  const next = { [forward]: now + 1, [forward === "ArrowLeft" ? "ArrowRight" : "ArrowLeft"]: now - 1, Home: 0, End: count - 1 }[event.key];
  if (next === undefined || event.ctrlKey || event.metaKey || event.shiftKey || !count) return;
  event.preventDefault();
  pointAt("target", Math.max(0, Math.min(next, count - 1)));
}

// Languages

const nameOf = (code) => state.languages.find((language) => language.code === code)?.name ?? code;

function showLanguages() {
  const sources = state.languages.filter(({ targets }) => targets.length);
  if (sources.length > 1) source.append(new Option("Auto-detect", "auto"));
  source.append(...sources.map(({ code, name }) => new Option(name, code)));
  source.value = state.settings.language?.source?.code ?? "";
  if (source.selectedIndex < 0) source.value = sources[0]?.code ?? "";
  showTargets(state.settings.language?.target?.code);
}

/** Offer the languages into which the chosen one is translated. */
function showTargets(wanted = target.value) {
  const codes = new Set(state.languages.filter(({ code }) => source.value === "auto" || code === source.value).flatMap(({ targets }) => targets));
  target.replaceChildren(...[...codes].map((code) => new Option(nameOf(code), code)));
  target.value = codes.has(wanted) ? wanted : target.options[0]?.value;
  for (const [select, name] of [[source, at("source-name")], [target, at("target-name")]]) {
    select.hidden = select.options.length < 2;
    name.textContent = select.hidden ? nameOf(select.value) : "";
  }
  text.lang = source.value === "auto" ? "" : source.value;
  const several = state.languages.some(({ code, targets }) => targets.some((other) => goes(other, code)));
  at("swap").hidden = !several;
  at("swap").disabled = source.value !== "auto" && !goes(target.value, source.value);
}

const goes = (from, to) => state.languages.some(({ code, targets }) => code === from && targets.includes(to));

function swap() {
  const from = source.value === "auto" ? state.detected : source.value, into = target.value;
  if (!goes(into, from)) return say("Choose the source language first.", true);
  source.value = into;
  showTargets(from);
  text.value = translation.textContent || text.value;
  typed();
  translate();
}

// The rest

async function copy() {
  const words = translation.textContent;
  const clipboard = navigator.clipboard?.writeText(words) ?? Promise.reject(); // browsers have none for pages without HTTPS
  say(await clipboard.then(() => true, copySelected) ? "Copied." : "This browser does not let the page copy.");
}

function copySelected() {
  getSelection().selectAllChildren(translation);
  return document.execCommand("copy");
}

function wire() {
  const seconds = (state.settings.frontendTimeout ?? 500) / 1000;
  text.oninput = () => { typed(); translate(seconds); };
  text.onpointermove = (event) => hover("source", event);
  text.onkeyup = text.onclick = () => { if (state.result) pointAt("source", wordAt(state.result.source, text.selectionStart)); };
  translation.onpointermove = translation.onclick = (event) => hover("target", event);
  translation.onkeydown = step;
  for (const box of [text, translation]) box.onpointerleave = box.onblur = () => point(null);
  source.onchange = () => { showTargets(); translate(); };
  target.onchange = () => { showTargets(); translate(); };
  at("swap").onclick = swap;
  at("copy").onclick = copy;
  at("clear").onclick = () => { text.value = ""; typed(); translate(); text.focus(); };
  at("key-form").onsubmit = (event) => { event.preventDefault(); key.set(at("key").value.trim()); at("key-form").hidden = true; text.focus(); translate(); };
  addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate(); });
}

async function begin() {
  const { signal } = new AbortController();
  const both = () => Promise.all([ask("languages", signal), ask("frontend/settings", signal)]);
  [state.languages, state.settings] = await persist(both, signal, complain);
  say("");
  showLanguages();
  wire();
  if (state.settings.keyRequired && !key.get()) askForKey();
  if (state.settings.filesTranslation) offerFiles(state.settings.supportedFilesFormat, () => ({ source: source.value, target: target.value }), askForKey);
  typed();
  translate(); // what was typed before all was loaded
}

begin();
