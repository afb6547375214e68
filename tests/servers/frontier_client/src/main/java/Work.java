import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import outrider.v1.Answer;
import outrider.v1.FrontierGrpc;
import outrider.v1.FrontierGrpc.FrontierBlockingStub;
import outrider.v1.Request;

/** Crawls a made web with stubs of Outrider's own frontier.proto, and prints what it saw as one JSON document. */
public final class Work {
    private static final Metadata.Key<byte[]> PROBLEM =
        Metadata.Key.of("outrider-problem-bin", Metadata.BINARY_BYTE_MARSHALLER);
    private static final int CALL_SECONDS_MAX = 30;

    private final ManagedChannel channel;
    private final int pages;
    private final JsonObject seen = new JsonObject();
    private final Set<String> fetched = new HashSet<>();

    private Work(ManagedChannel channel, int pages) {
        this.channel = channel;
        this.pages = pages;
    }

    public static void main(String[] arguments) {
        ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
        Work work = new Work(channel, Integer.parseInt(arguments[2]));
        try {
            work.discover(Integer.parseInt(arguments[1]));
            work.extendAndReturn();
            work.refuse("nameless", FrontierBlockingStub::lease, new JsonObject());
            work.waitToTheDeadline();
            work.crawl();
            work.look();
        } finally {
            channel.shutdown();
        }
        System.out.println(work.seen);
    }

    /** Adds the seeds. The repeated call has the answer of the first one. */
    private void discover(int hosts) {
        JsonArray seeds = new JsonArray();
        for (int host = 0; host < hosts; host++) {
            JsonObject seed = new JsonObject();
            seed.addProperty("url", "http://h" + host + ".example/0");
            seed.addProperty("priority", host == 0 ? 0.75 : 0.5);
            seeds.add(seed);
        }
        JsonObject document = new JsonObject();
        document.add("urls", seeds);
        JsonObject first = made(FrontierBlockingStub::discover, document, "seeds");
        seen.add("added", first.get("accepted"));
        seen.addProperty("repeated_alike", first.equals(made(FrontierBlockingStub::discover, document, "seeds")));
    }

    /** Leases the seeds, extends the lease, returns it, and reports for it after that. */
    private void extendAndReturn() {
        JsonObject leased = leased(100);
        seen.add("first_url", urls(leased).get(0).getAsJsonObject().get("url"));
        JsonObject ttl = new JsonObject();
        ttl.add("lease_id", leased.get("lease_id"));
        ttl.addProperty("ttl_ms", 120_000);
        JsonObject extended = made(FrontierBlockingStub::extendLease, ttl, "");
        seen.add("extended", extended.get("open"));
        seen.add("extended_ms", extended.get("lease_expires_in_ms"));
        JsonObject lease = new JsonObject();
        lease.add("lease_id", leased.get("lease_id"));
        seen.add("returned", made(FrontierBlockingStub::returnLease, lease, "").get("returned"));
        refuse("late", FrontierBlockingStub::reportResults, results(leased));
    }

    /** The wait for a URL of a queue that does not exist ends at the deadline of the call. */
    private void waitToTheDeadline() {
        JsonObject wish = wish(1);
        wish.addProperty("queue_key", "other.example");
        wish.addProperty("timeout_ms", 20_000);
        try {
            FrontierGrpc.newBlockingStub(channel).withDeadlineAfter(300, TimeUnit.MILLISECONDS).lease(request(wish, ""));
            seen.addProperty("deadline", "answered");
        } catch (StatusRuntimeException error) {
            seen.addProperty("deadline", error.getStatus().getCode().name());
        }
    }

    /** Fetches all pages: each lease is reported with the links of its pages in one message. */
    private void crawl() {
        int twice = 0;
        int links = 0;
        int stale = 0;
        int extended = 0;
        while (true) {
            JsonObject leased = leased(10);
            JsonArray urls = urls(leased);
            if (urls.isEmpty()) {
                if (leased.get("next_ready_in_ms").isJsonNull()) {
                    break;  // waiting alone does not help: all pages are fetched
                }
                continue;
            }
            JsonArray tokens = new JsonArray();
            for (JsonElement one : urls) {
                twice += fetched.add(one.getAsJsonObject().get("url").getAsString()) ? 0 : 1;
                tokens.add(one.getAsJsonObject().get("token"));
            }
            JsonObject extend = new JsonObject();
            extend.add("tokens", tokens);
            for (JsonElement code : made(FrontierBlockingStub::extend, extend, "").getAsJsonArray("codes")) {
                extended += code.getAsString().equals("ok") ? 1 : 0;
            }
            JsonObject taken = made(FrontierBlockingStub::reportResults, results(leased), "");
            stale += taken.get("stale").getAsInt();
            links += taken.getAsJsonObject("links").get("accepted").getAsInt();
        }
        seen.addProperty("fetched", fetched.size());
        seen.addProperty("twice", twice);
        seen.addProperty("stale", stale);
        seen.addProperty("links", links);
        seen.addProperty("tokens_extended", extended);
    }

    private void look() {
        JsonObject ready = made(FrontierBlockingStub::ready, new JsonObject(), "");
        seen.add("finished", ready.get("finished"));
        JsonObject document = new JsonObject();
        document.addProperty("url", "http://h1.example/1");
        JsonObject explained = made(FrontierBlockingStub::explain, document, "").getAsJsonObject("answer");
        seen.add("explained", explained.get("state"));
        JsonObject statistics = made(FrontierBlockingStub::statistics, new JsonObject(), "");
        seen.add("done", statistics.getAsJsonObject("urls").get("done"));
    }

    // -- messages -----------------------------------------------------------------------------------------------------

    private JsonObject leased(int want) {
        JsonObject wish = wish(want);
        wish.addProperty("timeout_ms", 5_000);
        return made(FrontierBlockingStub::lease, wish, "");
    }

    private static JsonObject wish(int want) {
        JsonObject wish = new JsonObject();
        wish.addProperty("worker_id", "java");
        wish.addProperty("batch_size", want);
        return wish;
    }

    private static JsonArray urls(JsonObject leased) {
        return leased.getAsJsonArray("urls");
    }

    /** Each page of a host links to two others. */
    private JsonObject results(JsonObject leased) {
        JsonArray results = new JsonArray();
        for (JsonElement one : urls(leased)) {
            String url = one.getAsJsonObject().get("url").getAsString();
            int page = Integer.parseInt(url.substring(url.lastIndexOf('/') + 1));
            JsonArray links = new JsonArray();
            for (int link = 2 * page + 1; link <= 2 * page + 2 && link < pages; link++) {
                links.add("/" + link);
            }
            JsonObject result = new JsonObject();
            result.addProperty("url", url);
            result.addProperty("status", "success");
            result.addProperty("http_status", 200);
            result.add("links", links);
            results.add(result);
        }
        JsonObject document = new JsonObject();
        document.add("lease_id", leased.get("lease_id"));
        document.add("results", results);
        return document;
    }

    private interface Method {
        Answer call(FrontierBlockingStub stub, Request request);
    }

    /** Makes a call, and returns the document of its answer. */
    private JsonObject made(Method method, JsonObject document, String key) {
        FrontierBlockingStub stub = FrontierGrpc.newBlockingStub(channel)
            .withDeadlineAfter(CALL_SECONDS_MAX, TimeUnit.SECONDS);
        return JsonParser.parseString(method.call(stub, request(document, key)).getJson()).getAsJsonObject();
    }

    private static Request request(JsonObject document, String key) {
        return Request.newBuilder().setJson(document.toString()).setIdempotencyKey(key).build();
    }

    /** Notes the status of a call that the server refuses, and the type of its problem document. */
    private void refuse(String name, Method method, JsonObject document) {
        try {
            made(method, document, "");
            seen.addProperty(name, "answered");
        } catch (StatusRuntimeException error) {
            byte[] octets = error.getTrailers().get(PROBLEM);
            JsonObject problem = JsonParser.parseString(new String(octets, StandardCharsets.UTF_8)).getAsJsonObject();
            seen.addProperty(name, error.getStatus().getCode() + " " + problem.get("type").getAsString());
        }
    }
}
