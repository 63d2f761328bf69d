// Times are shown in the browser's own time zone and language, and grow older without the server.
// <time data-at="SECONDS" data-style="ago|clock|moment|hour"> and <time data-from="SECONDS" data-to="SECONDS">.
const language = document.documentElement.lang || "en";
const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
const hourCycle = "h23"; // one clock on all pages, as on the timeline
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle });
const moment = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium", hourCycle });
const hour = new Intl.DateTimeFormat(language, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", hourCycle });
const WRITTEN = { clock, moment, hour };
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function ago(at) {
  const age = Date.now() / 1000 - at;
  const [unit, size] = UNITS.find(([, size]) => Math.abs(age) >= size) || UNITS[UNITS.length - 1];
  return relative.format(-Math.trunc(age / size), unit);
}

const [DAY, HOUR, MINUTE, SECOND] = language.startsWith("zh") ? ["天", "小时", "分", "秒"] : ["d", "h", "min", "s"];

function lasting(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} ${DAY} ${hours} ${HOUR}`;
  if (hours) return `${hours} ${HOUR} ${minutes} ${MINUTE}`;
  return minutes ? `${minutes} ${MINUTE} ${whole % 60} ${SECOND}` : `${whole} ${SECOND}`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function write(element) {
  const { at, from, to, style } = element.dataset;
  if (from) {
    put(element, lasting((to ? Number(to) : Date.now() / 1000) - Number(from)));
    return;
  }
  if (!at) return put(element, "");
  const date = new Date(Number(at) * 1000);
  put(element, style in WRITTEN ? WRITTEN[style].format(date) : ago(Number(at)));
  if (style === "hour") return; // no more is known
  const whole = moment.format(date);
  if (element.title !== whole) element.title = whole;
}

const writeAll = () => document.querySelectorAll("time").forEach(write);
const options = { subtree: true, childList: true, attributeFilter: ["data-at", "data-from", "data-to"] };
new MutationObserver(writeAll).observe(document.body, options);
setInterval(writeAll, 1000);
writeAll();

// The way back from a job leads to the list as it was, with its filters (`pages/job_table.js` keeps its address).
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.back-to-list");
  if (link) link.search = sessionStorage.getItem("raymc-list") || "";
});

// A button in a .copy-block copies the text beside it. Without https a browser has no clipboard: then the
// text is selected and copied the old way.
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy-button");
  if (!button) return;
  const text = button.closest(".copy-block").querySelector(".copy-text");
  if (navigator.clipboard) await navigator.clipboard.writeText(text.textContent);
  else {
    getSelection().selectAllChildren(text);
    document.execCommand("copy");
  }
  const label = button.querySelector(".block");
  const before = label.textContent;
  if (before === button.dataset.copied) return;
  label.textContent = button.dataset.copied;
  setTimeout(() => { label.textContent = before; }, 2000);
});
