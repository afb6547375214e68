import com.google.gson.JsonObject;
import crawlercommons.urlfrontier.URLFrontierGrpc;
import crawlercommons.urlfrontier.Urlfrontier.AckMessage;
import crawlercommons.urlfrontier.Urlfrontier.BatchAck;
import crawlercommons.urlfrontier.Urlfrontier.DiscoveredBatch;
import crawlercommons.urlfrontier.Urlfrontier.DiscoveredURLItem;
import crawlercommons.urlfrontier.Urlfrontier.PurgeUrlParams;
import crawlercommons.urlfrontier.Urlfrontier.URLInfo;
import crawlercommons.urlfrontier.Urlfrontier.URLItem;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Sends URLs in the protocol URLFrontier: one by one without waiting for their acknowledgements, and in batches. Then it
 * purges them. Prints the counts of the answers as one JSON document.
 */
public final class Sends {
    private static final int HOSTS = 500;
    private static final int BATCH = 256;
    private static final int CALL_SECONDS_MAX = 60;
    private static final int PURGE_PAUSE_MS = 200;

    private final ManagedChannel channel;
    private final JsonObject seen = new JsonObject();

    private Sends(ManagedChannel channel) {
        this.channel = channel;
    }

    public static void main(String[] arguments) throws Exception {
        ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
        Sends sends = new Sends(channel);
        try {
            int batches = Integer.parseInt(arguments[2]);
            sends.inFlight(Integer.parseInt(arguments[1]));
            sends.batches("new", batches);
            sends.batches("known", batches);
            sends.purge("batches", batches * BATCH);
        } finally {
            channel.shutdown();
        }
        System.out.println(sends.seen);
    }

    /** Answers of one kind, counted by status, until their stream ends. */
    private static final class Counted<T> implements StreamObserver<T> {
        private final Map<String, Integer> counts = new TreeMap<>();
        private final Set<String> ids = ConcurrentHashMap.newKeySet();
        private final CountDownLatch ended = new CountDownLatch(1);

        @Override
        public void onNext(T answer) {
            if (answer instanceof AckMessage ack) {
                ids.add(ack.getID());
                counts.merge(ack.getStatus().name(), 1, Integer::sum);
            } else if (answer instanceof BatchAck ack) {
                ids.add(ack.getID());
                ack.getStatusesList().forEach(status -> counts.merge(status.name(), 1, Integer::sum));
            }
        }

        @Override
        public void onError(Throwable error) {
            counts.put(error.toString(), 1);
            ended.countDown();
        }

        @Override
        public void onCompleted() {
            ended.countDown();
        }

        private String words() throws InterruptedException {
            boolean complete = ended.await(CALL_SECONDS_MAX, TimeUnit.SECONDS);
            return complete ? counts + " of " + ids.size() : "not ended";
        }
    }

    private void inFlight(int items) throws InterruptedException {
        Counted<AckMessage> answers = new Counted<>();
        StreamObserver<URLItem> stream = URLFrontierGrpc.newStub(channel).putURLs(answers);
        for (int row = 0; row < items; row++) {
            DiscoveredURLItem item = DiscoveredURLItem.newBuilder().setInfo(url("in-flight", row)).build();
            stream.onNext(URLItem.newBuilder().setID("item " + row).setDiscovered(item).build());
        }
        stream.onCompleted();
        seen.addProperty("in_flight", answers.words());
    }

    private void batches(String name, int batches) throws InterruptedException {
        Counted<BatchAck> answers = new Counted<>();
        StreamObserver<DiscoveredBatch> stream = URLFrontierGrpc.newStub(channel).putDiscovered(answers);
        for (int batch = 0; batch < batches; batch++) {
            DiscoveredBatch.Builder items = DiscoveredBatch.newBuilder().setID("batch " + batch);
            for (int row = batch * BATCH; row < (batch + 1) * BATCH; row++) {
                items.addItems(url("batches", row));
            }
            stream.onNext(items.build());
        }
        stream.onCompleted();
        seen.addProperty(name, answers.words());
    }

    /** Purges the URLs of a crawl. Those of this second stay, so it repeats the call until all are deleted. */
    private void purge(String crawl, int urls) throws InterruptedException {
        long purged = 0;
        for (int tried = 0; purged < urls && tried * PURGE_PAUSE_MS < CALL_SECONDS_MAX * 1_000; tried++) {
            Thread.sleep(tried == 0 ? 0 : PURGE_PAUSE_MS);
            purged += URLFrontierGrpc.newBlockingStub(channel).withDeadlineAfter(CALL_SECONDS_MAX, TimeUnit.SECONDS)
                .purgeURLs(PurgeUrlParams.newBuilder().setCrawlID(crawl).build()).getValue();
        }
        seen.addProperty("purged", purged);
    }

    private static URLInfo url(String crawl, int row) {
        String host = "h" + row % HOSTS + ".example";
        return URLInfo.newBuilder().setUrl("http://" + host + "/" + row).setKey(host).setCrawlID(crawl).build();
    }
}
