// What the pages cannot do by themselves: ask before they act, follow what is going on, keep times fresh.
// Everything is drawn by the server; nothing here builds markup from data.
"use strict";
(() => {
  const $ = (query, from = document) => from.querySelector(query);
  const body = document.body;
  const skew = Date.parse(body.dataset.now) - Date.now();
  const many = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

  // ---- saying how it went ----
  let silence;
  function tell(text, tone = "good") {
    const line = document.createElement("div");
    line.className = tone;
    line.textContent = text;
    $("#told").replaceChildren(line);
    clearTimeout(silence);
    silence = setTimeout(() => $("#told").replaceChildren(), tone === "good" ? 6000 : 15000);
  }

  async function post(url, sent) {
    const options = { method: "POST", credentials: "same-origin" };
    if (sent) Object.assign(options, { body: sent, headers: { "content-type": "application/json" } });
    const answer = await fetch(url, options);
    if (answer.status === 401) return void location.reload();
    const text = await answer.text();
    const isJson = (answer.headers.get("content-type") || "").startsWith("application/json");
    const got = isJson ? JSON.parse(text) : text;
    if (!answer.ok) {
      const error = isJson ? got.error : { message: `The server answered ${answer.status}.`, remedy: "" };
      throw new Error(`${error.message} ${error.remedy}`.trim());
    }
    return got;
  }

  function outcome(got, otherwise) {
    const run = got && got.runs && got.runs[0];
    if (!run) return tell(otherwise || "Done.");
    const did = [["added", run.added], ["updated", run.updated], ["deleted", run.deleted], ["held", run.held], ["failed", run.failed]]
      .filter(([, count]) => count > 0).map(([word, count]) => `${count.toLocaleString("en")} ${word}`);
    const tone = run.status === "ok" ? "good" : run.status === "held" ? "held" : "bad";
    tell(`${run.trigger}: ${run.status}, ${did.join(", ") || "nothing changed"}.`, tone);
  }

  // ---- asking first ----
  function confirmed(title, detail, verb, danger) {
    const dialog = $("#ask");
    $("h2", dialog).textContent = title;
    $("p", dialog).textContent = detail;
    const yes = $("[value=yes]", dialog);
    yes.textContent = verb;
    yes.className = danger ? "danger" : "primary";
    dialog.returnValue = "";
    dialog.showModal();
    $("[value=no]", dialog).focus();
    return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
  }

  // What an undo would do is asked of the server, so that the question names the true counts.
  async function undoQuestion(url) {
    const plan = (await post(url)).plans[0];
    const [back, former, gone, held] = [plan.add.length, plan.update.length, plan.delete.length, plan.held.length];
    const all = back + former + gone + held;
    const parts = [];
    if (back) parts.push(`${many(back, "key")} written back`);
    if (former) parts.push(`${many(former, "key")} set to the former value`);
    if (gone) parts.push(`${many(gone, "key")} deleted`);
    if (held) parts.push(`${many(held, "change")} held by the guard until approved`);
    return { all, title: `Undo ${many(all, "change")}?`, detail: parts.join(", ") + ".", verb: `Undo ${many(all, "change")}` };
  }

  async function act(button) {
    const set = button.dataset;
    button.disabled = true;
    try {
      let question = set.ask && { title: set.ask, detail: set.detail || "", verb: set.verb || "Yes" };
      if (set.preview) {
        question = await undoQuestion(set.preview);
        if (question.all === 0) return tell("There is nothing left to undo in this run.", "held");
      }
      if (question && !(await confirmed(question.title, question.detail, question.verb, "danger" in set))) return;
      const got = await post(set.post, set.body);
      if (set.into) {
        const place = $(set.into);
        place.innerHTML = got;
        place.focus();
      } else {
        outcome(got, set.done);
        await refresh();
      }
    } catch (error) {
      tell(error.message, "bad");
    } finally {
      button.disabled = false;
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-post]");
    if (button) act(button);
    if (event.target.closest("[data-close]")) $(event.target.closest("[data-close]").dataset.close).replaceChildren();
  });

  // ---- forms: their fields as JSON, sent as a button's request is ----
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-post]");
    if (!form) return;
    event.preventDefault();
    const sent = {};
    for (const field of form.elements) {
      if (field.name) sent[field.name] = "number" in field.dataset ? Number(field.value) : field.value;
    }
    const button = $("button", form);
    button.disabled = true;
    try {
      outcome(await post(form.dataset.post, JSON.stringify(sent)), form.dataset.done);
      form.reset();
      const around = form.closest("details");
      if (around) { around.open = false; $("summary", around).focus(); }
      await refresh();
    } catch (error) {
      tell(error.message, "bad");
    } finally {
      button.disabled = false;
    }
  });

  // ---- the page as it is now: the server draws it anew, and only what differs is exchanged ----
  let late = false, asked = 0, shown = 0;
  async function refresh() {
    if ($("#ask").open) return void (late = true);
    const mine = ++asked;
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    // An answer that a later one has overtaken shows what was.
    if (mine < shown) return;
    shown = mine;
    [document, fresh].forEach(times);
    document.querySelectorAll("[data-fresh]").forEach((old) => {
      const now = fresh.getElementById(old.id);
      if (!now || now.innerHTML === old.innerHTML) return;
      // What somebody is writing is not taken from under their hands.
      const typed = [...old.querySelectorAll("textarea")].filter((one) => one.value !== one.defaultValue);
      const held = document.activeElement;
      const at = old.contains(held) && held.id;
      const mark = old.contains(held) && held.dataset.post;
      const open = [...old.querySelectorAll("details[open]")].map((one) => one.id);
      old.replaceChildren(...now.childNodes);
      open.filter(Boolean).forEach((id) => { const one = document.getElementById(id); if (one) one.open = true; });
      typed.forEach((was) => { const one = document.getElementById(was.id); if (one) one.value = was.value; });
      if (at) document.getElementById(at)?.focus();
      if (mark) { const same = old.querySelector(`[data-post="${CSS.escape(mark)}"]`); (same || $("main")).focus(); }
    });
  }
  let soon;
  const refreshSoon = () => { clearTimeout(soon); soon = setTimeout(() => refresh().catch(() => {}), 400); };
  $("#ask").addEventListener("close", () => { if (late) { late = false; refreshSoon(); } });

  // ---- what is going on ----
  const watched = body.dataset.pipeline;
  let step = null;
  function progress(event) {
    const place = $("#progress");
    if (!place || event.pipeline !== watched) return;
    if (event.event === "step") step = { name: event.step, items: event.items, done: 0 };
    if (event.event === "advance" && step) step.done = event.done;
    if (!step) return;
    const bar = $("progress", place);
    place.classList.remove("gone");
    if (step.items) { bar.max = step.items; bar.value = step.done; } else bar.removeAttribute("value");
    const far = step.items ? `${step.done.toLocaleString("en")} of ${many(step.items, "item")}`
      : step.done && many(step.done, "item");
    $("span", place).textContent = far ? `${step.name}: ${far}` : `${step.name} …`;
  }
  if ("live" in body.dataset) {
    const events = new EventSource("/api/events");
    for (const name of ["step", "advance"]) events.addEventListener(name, (sent) => progress(JSON.parse(sent.data)));
    const ended = () => {
      step = null;
      const place = $("#progress");
      if (place) place.classList.add("gone");
      refreshSoon();
    };
    for (const name of ["run", "not_started"]) events.addEventListener(name, ended);
    let begun = 0;
    events.addEventListener("step", () => { if (Date.now() - begun > 2000) { begun = Date.now(); refreshSoon(); } });
    addEventListener("pagehide", () => events.close());
    const mark = $("#wire");
    // What ended before, or while the line was broken, was told to nobody here.
    events.onopen = () => { mark.textContent = "live"; ended(); };
    events.onerror = () => { mark.textContent = "reconnecting …"; };
  }

  // ---- jobs: asked about while any is under way; then the page shows what came of them ----
  const FOLLOW = 1000;
  setInterval(async () => {
    const place = $("[data-poll]");
    if (!place || !$("[data-busy]", place) || place.dataset.asking) return;
    place.dataset.asking = "yes";
    try {
      const answer = await fetch(place.dataset.poll, { credentials: "same-origin", headers: { accept: "text/html" } });
      if (!answer.ok) return;
      place.innerHTML = await answer.text();
      times(place);
      if (!$("[data-busy]", place)) await refresh();
    } catch { /* the next round asks again */ } finally {
      delete place.dataset.asking;
    }
  }, FOLLOW);

  // ---- times ----
  function ago(ms) {
    const steps = [[60, "s"], [60, "min"], [24, "h"], [Infinity, "d"]];
    let value = Math.round(Math.abs(ms) / 1000);
    for (const [size, unit] of steps) {
      if (value < size) {
        if (unit === "s" && value < 5) return "now";
        return ms < 0 ? `in ${value} ${unit}` : `${value} ${unit} ago`;
      }
      value = Math.round(value / size);
    }
    return "";
  }
  function times(place) {
    place.querySelectorAll("time[data-ago]").forEach((time) => {
      const said = ago(Date.now() + skew - Date.parse(time.dateTime));
      if (time.textContent !== said) time.textContent = said;
    });
  }
  setInterval(() => times(document), 10000);

  // ---- replicas ----
  const POLL = 2000, POINTS = 60;
  const lags = [];
  function draw(lag) {
    lags.push(lag);
    if (lags.length > POINTS) lags.shift();
    const top = Math.max(1, ...lags.filter((one) => one !== null));
    const points = lags.map((one, at) => one === null ? null : `${(at + POINTS - lags.length) * 10},${70 - 64 * one / top}`);
    $("#lag polyline").setAttribute("points", points.filter(Boolean).join(" "));
    $("#lag-top").textContent = `top ${top.toFixed(1)} s, last ${many(lags.length * POLL / 1000, "second")}`;
  }
  async function look(url) {
    const answer = await fetch(url, { credentials: "same-origin" });
    const got = await answer.json();
    if (!answer.ok) throw new Error(got.error.message);
    return got;
  }
  function showReplica(place, status, error) {
    const badge = $("[data-badge]", place), lag = $("[data-lag]", place);
    const troubles = status && status.failed + status.quarantined + status.gaps;
    const [tone, word] = error ? ["bad", "cannot be reached"] : !status.running ? ["bad", "not running"]
      : troubles ? ["bad", `${troubles} failed`] : status.held ? ["held", `${status.held} held`]
      : status.lag_seconds === null ? ["idle", "starting"] : status.lag_seconds > 10 ? ["late", "late"] : ["good", "true"];
    badge.className = `badge ${tone}`;
    badge.textContent = word;
    lag.textContent = error || status.lag_seconds === null ? "unknown" : `${status.lag_seconds.toFixed(1)} s, ${many(status.pending, "write")} waiting`;
  }
  async function replicas() {
    const one = $("[data-replica-page]");
    if (one) {
      const status = await look(`/api/replicas/${encodeURIComponent(one.dataset.replicaPage)}`).catch((error) => ({ error: error.message }));
      showReplica(document, status.error ? null : status, status.error);
      draw(status.error ? null : status.lag_seconds);
      return true;
    }
    const rows = document.querySelectorAll("[data-replica]");
    if (!rows.length) return false;
    const all = (await look("/api/replicas")).replicas;
    rows.forEach((row) => {
      const status = all.find((each) => each.replica === row.dataset.replica);
      if (status) showReplica(row, status.error ? null : status, status.error);
    });
    return true;
  }
  (async function poll() {
    const more = await replicas().catch(() => true);
    if (more) setTimeout(poll, $("[data-replica-page]") ? POLL : 3 * POLL);
  })();
  times(document);
})();
