import crawlercommons.urlfrontier.URLFrontierGrpc;
import crawlercommons.urlfrontier.Urlfrontier.AckMessage;
import crawlercommons.urlfrontier.Urlfrontier.DiscoveredURLItem;
import crawlercommons.urlfrontier.Urlfrontier.GetParams;
import crawlercommons.urlfrontier.Urlfrontier.KnownURLItem;
import crawlercommons.urlfrontier.Urlfrontier.QueueDelayParams;
import crawlercommons.urlfrontier.Urlfrontier.QueueWithinCrawlParams;
import crawlercommons.urlfrontier.Urlfrontier.Stats;
import crawlercommons.urlfrontier.Urlfrontier.URLInfo;
import crawlercommons.urlfrontier.Urlfrontier.URLItem;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Crawls a made web as StormCrawler does: one call of GetURLs after another, and one stream of updates. */
public final class Crawl {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        int hosts = Integer.parseInt(arguments[1]);
        int pages = Integer.parseInt(arguments[2]);
        ManagedChannel channel = ManagedChannelBuilder.forTarget(address).usePlaintext().build();
        Set<String> waiting = ConcurrentHashMap.newKeySet();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        CountDownLatch ended = new CountDownLatch(1);
        StreamObserver<URLItem> updates = URLFrontierGrpc.newStub(channel).putURLs(new StreamObserver<AckMessage>() {
            @Override
            public void onNext(AckMessage ack) {
                if (ack.getStatus() == AckMessage.Status.FAIL) {
                    failed.add(ack.getID());
                }
                waiting.remove(ack.getID());
            }

            @Override
            public void onError(Throwable error) {
                failed.add(error.toString());
                ended.countDown();
            }

            @Override
            public void onCompleted() {
                ended.countDown();
            }
        });
        URLFrontierGrpc.URLFrontierBlockingStub frontier = URLFrontierGrpc.newBlockingStub(channel).withWaitForReady();
        frontier.setDelay(QueueDelayParams.newBuilder().setDelayRequestable(0).build());
        for (int host = 0; host < hosts; host++) {
            String seed = "http://h" + host + ".example/0";
            // The first host has the key that StormCrawler uses if a URL has none.
            send(updates, waiting, discovered(seed, host == 0 ? "_DEFAULT_" : ""), seed);
        }
        frontier.setDelay(QueueDelayParams.newBuilder().setDelayRequestable(0).build());
        Set<String> fetched = new HashSet<>();
        int twice = 0;
        int empty = 0;
        while (fetched.size() < hosts * pages && empty < 2_000) {
            GetParams wish = GetParams.newBuilder().setMaxQueues(10).setMaxUrlsPerQueue(10).setDelayRequestable(60).build();
            Iterator<URLInfo> handedOut = frontier.getURLs(wish);
            boolean some = false;
            while (handedOut.hasNext()) {
                URLInfo info = handedOut.next();
                some = true;
                twice += fetched.add(info.getUrl()) ? 0 : 1;
                int slash = info.getUrl().lastIndexOf('/');
                int page = Integer.parseInt(info.getUrl().substring(slash + 1));
                for (int link = 2 * page + 1; link <= 2 * page + 2 && link < pages; link++) {
                    String url = info.getUrl().substring(0, slash + 1) + link;
                    send(updates, waiting, discovered(url, info.getKey()), url);
                }
                URLItem done = URLItem.newBuilder().setID(info.getUrl() + "#done").setKnown(
                    KnownURLItem.newBuilder().setInfo(info).setRefetchableFromDate(0)).build();
                send(updates, waiting, done, info.getUrl() + "#done");
            }
            empty = some ? 0 : empty + 1;
            if (!some) {
                Thread.sleep(10);
            }
        }
        updates.onCompleted();
        boolean complete = ended.await(60, TimeUnit.SECONDS);
        Stats stats = frontier.getStats(QueueWithinCrawlParams.newBuilder().build());
        channel.shutdown();
        System.out.println("fetched=" + fetched.size() + " twice=" + twice + " unanswered=" + waiting.size() + " failed="
            + failed.size() + " ended=" + complete + " size=" + stats.getSize() + " completed="
            + stats.getCountsOrDefault("completed", -1) + " queues=" + stats.getNumberOfQueues()
            + (failed.isEmpty() ? "" : " " + Collections.list(Collections.enumeration(failed)).get(0)));
    }

    private static URLItem discovered(String url, String key) {
        URLInfo info = URLInfo.newBuilder().setUrl(url).setKey(key).setCrawlID("DEFAULT").build();
        return URLItem.newBuilder().setID(url).setDiscovered(DiscoveredURLItem.newBuilder().setInfo(info)).build();
    }

    private static void send(StreamObserver<URLItem> updates, Set<String> waiting, URLItem item, String id) {
        waiting.add(id);
        updates.onNext(item);
    }
}
